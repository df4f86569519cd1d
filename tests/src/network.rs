//! A network that can fail: a proxy before a server on loopback.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use crate::until;

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Weather {
    /// Everything arrives.
    Fine,
    /// Connections are closed, and new ones refused.
    Cut,
    /// The answer to the next claim is lost; then it is cut.
    LosesTheNextClaim,
}

/// What only the answer to a claim has: the id of a lease.
const MADE: &[u8] = b"\"ls_";

/// A proxy; it ends with the test.
pub struct Network {
    port: u16,
    weather: Arc<AtomicU8>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Network {
    /// A network before the server on this port.
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let weather = Arc::new(AtomicU8::new(Weather::Fine as u8));
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (sky, streams) = (Arc::clone(&weather), Arc::clone(&open));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if is(&sky, Weather::Cut) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                streams.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (there, here, cut) = (Arc::clone(&sky), Arc::clone(&sky), Arc::clone(&streams));
                thread::spawn(move || pass(client, server, &there, None));
                thread::spawn(move || pass(back.0, back.1, &here, Some(&cut)));
            }
        });
        Self { port, weather, open }
    }

    /// Where to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on it is like this.
    pub fn set(&self, weather: Weather) {
        self.weather.store(weather as u8, Ordering::SeqCst);
        if weather == Weather::Cut {
            close_all(&self.open);
        }
    }

    /// Waits until an answer was lost.
    pub fn wait_until_cut(&self) {
        until(30, "something is claimed", || is(&self.weather, Weather::Cut));
    }
}

fn is(weather: &AtomicU8, wanted: Weather) -> bool {
    weather.load(Ordering::SeqCst) == wanted as u8
}

fn close_all(open: &Mutex<Vec<TcpStream>>) {
    for stream in open.lock().unwrap().drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Passes on what comes; `open` are the connections to close with, if this is the way back from the server.
fn pass(mut from: TcpStream, mut to: TcpStream, weather: &AtomicU8, open: Option<&Mutex<Vec<TcpStream>>>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if is(weather, Weather::Cut) {
            break;
        }
        // A lease that was just made: the server has it, and nobody hears of it.
        let made = buffer[..count].windows(MADE.len()).any(|window| window == MADE);
        if let Some(open) = open
            && made
            && is(weather, Weather::LosesTheNextClaim)
        {
            weather.store(Weather::Cut as u8, Ordering::SeqCst);
            close_all(open);
            return;
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
