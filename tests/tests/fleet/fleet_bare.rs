//! A machine with nothing on it: it joins, clones, works, and its work lands, over a network of its own.
//!
//! The test starts itself again in namespaces of its own, so nothing leaves the machine. Git is served over HTTPS by
//! `git http-backend` behind a few lines of Python.
#![cfg(target_os = "linux")]

use std::env;

use toft_stories::far_network::{Place, prepare_hub, tell_alone};
use toft_stories::prelude::*;
use toft_stories::repositories::add;

/// Set where the story is told.
const INSIDE: &str = "TOFT_BARE_INSIDE";
/// The address of this side of the link.
const HUB: &str = "10.77.0.1";
/// The port of git.
const GIT_PORT: &str = "7843";

/// Serves the repositories below the present directory over HTTPS.
const GIT_SERVER: &str = r#"
import http.server, os, ssl, subprocess, sys
class Git(http.server.BaseHTTPRequestHandler):
    def answer(self):
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        asked = dict(
            os.environ, GIT_PROJECT_ROOT=os.getcwd(), GIT_HTTP_EXPORT_ALL="1", REMOTE_USER="build",
            PATH_INFO=path, QUERY_STRING=query, REQUEST_METHOD=self.command, CONTENT_LENGTH=str(len(body)),
            CONTENT_TYPE=self.headers.get("content-type", ""), REMOTE_ADDR=self.client_address[0],
            HTTP_CONTENT_ENCODING=self.headers.get("content-encoding", ""),
            GIT_PROTOCOL=self.headers.get("git-protocol", ""),
        )
        said = subprocess.run(["git", "http-backend"], input=body, env=asked, capture_output=True).stdout
        head, _, rest = said.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        status = next((int(value.split()[0]) for name, value in fields if name == "Status"), 200)
        self.send_response(status)
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("content-length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)
    do_GET = do_POST = answer
server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Git)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

#[test]
#[ignore = "wide: a network of its own"]
fn a_machine_without_a_clone_joins_clones_works_and_its_work_lands() {
    if env::var_os(INSIDE).is_some() {
        return tell();
    }
    tell_alone("fleet_bare::a_machine_without_a_clone_joins_clones_works_and_its_work_lands", INSIDE, None);
}

/// Certificates for the hub.
fn certificates(home: &Home) {
    let make = format!(
        "set -e; curve='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'
        openssl req -x509 $curve -keyout ca.key -out ca.pem -subj /CN=ca
        openssl req $curve -keyout key.pem -out request.pem -subj /CN=server
        echo 'subjectAltName=IP:{HUB}' > names
        openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -days 2 -out cert.pem"
    );
    home.run(home.path(), "sh", &["-c", &make]);
}

fn git_server(home: &Home) -> ChildGuard {
    let mut serve = home.command(home.path(), "python3", &["-c", GIT_SERVER, HUB, GIT_PORT]);
    let server = ChildGuard(serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until(20, "git is not served", || std::net::TcpStream::connect((HUB, GIT_PORT.parse::<u16>().unwrap())).is_ok());
    server
}

/// Runs a command on the bare machine, within its network.
fn there(place: &Place, mut command: Command) -> (bool, String) {
    let output = std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            place.enter().unwrap();
            command.output().unwrap()
        });
        inside.join().unwrap()
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn tell() {
    prepare_hub(&[]).unwrap();
    let place = Place::new(0).unwrap();
    let mut ana = Home::new();
    ana.until_landed();
    certificates(&ana);
    let ca = ana.path().join("ca.pem").display().to_string();
    let seed = ana.git("seed");
    ana.run(&seed, "git", &["clone", "-q", "--bare", ".", "../shop.git"]);
    ana.run(&ana.path().join("shop.git"), "git", &["config", "http.receivepack", "true"]);
    let _git = git_server(&ana);
    let (cert, key) =
        (ana.path().join("cert.pem").display().to_string(), ana.path().join("key.pem").display().to_string());
    let store = ana.path().join("fleet.db").display().to_string();
    let server = FleetServer::listen(&ana, &store, &format!("{HUB}:0"), &["--cert", &cert, "--key", &key]);
    let secret = server.token(&ana, "ana", "admin");
    for (name, value) in [("TOFT_STORE", &server.url), ("TOFT_TOKEN", &secret), ("TOFT_CA", &ca)] {
        ana.set(name, value);
    }
    ana.run(ana.path(), "git", &["config", "--global", "http.sslCAInfo", &ca]);
    let url = format!("https://{HUB}:{GIT_PORT}/shop.git");
    ana.run(ana.path(), "git", &["clone", "-q", &url, "shop"]);
    let here = ana.path().join("shop");
    ana.toft(&here, &["init"]).ok();
    for refused in ["file:///srv/shop.git", "https://ana:secret@git.example/shop"] {
        ana.toft(&here, &["init", "--clone-url", refused]).fails(2);
    }
    let (first, _) = add(&ana, &here, &["Greet in French"]);
    ana.toft(&here, &["sync"]).ok();

    // The machine has a certificate to trust, a user, and nothing else.
    let mut bare = Home::new();
    bare.set("TOFT_HOST", "bare-machine");
    bare.set("TOFT_CA", &ca);
    bare.toft_on_path();
    bare.until_landed();
    bare.run(bare.path(), "git", &["config", "--global", "http.sslCAInfo", &ca]);
    let code = ana.toft(&here, &["token", "create", "build", "--join", "-q"]).ok().trim().to_owned();
    let on_bare = |args: &[&str]| there(&place, bare.command(bare.path(), toft_bin(), args));
    let (joined, said) = on_bare(&["login", &server.url, "--code", &code]);
    assert!(joined, "{said}");
    let agent = "cat > /dev/null; echo bonjour >> greeting; git add -A; git commit -q -m greet";
    let run = ["run", "--clone", "--until-idle", "--store", &server.url, "--", "sh", "-c", agent];
    // Nothing is cloned that no coordinator named.
    let (worked, said) = on_bare(&run);
    assert!(!worked && said.contains("no repository of this server has an address"), "{said}");
    // An address that is another repository's is said, and can be corrected.
    let stranger = ana.git("stranger");
    ana.run(&stranger, "git", &["clone", "-q", "--bare", ".", "../stranger.git"]);
    ana.toft(&here, &["init", "--clone-url", &format!("https://{HUB}:{GIT_PORT}/stranger.git")]).ok();
    let (worked, said) = on_bare(&run);
    assert!(!worked && said.contains("its history is another one"), "{said}");
    ana.toft(&here, &["init", "--clone-url", &url]).says(&url);
    let (worked, said) = on_bare(&run);
    assert!(worked && said.contains("1 done"), "{said}");

    fs::create_dir_all(here.join(".git/toft")).unwrap();
    fs::write(here.join(".git/toft/config.toml"), "[land]\ninto = \"origin/main\"\n").unwrap();
    let landed = ana.toft(&here, &["land"]).ok();
    assert!(landed.contains("1 landed"), "{landed}");
    assert_eq!(ana.run(&ana.path().join("shop.git"), "git", &["show", "main:greeting"]), "bonjour\n");
    assert_eq!(ana.toft(&here, &["show", &first, "--json"]).data()["status"], "closed");

    // The next piece of work begins with what has landed.
    let (second, _) = add(&ana, &here, &["Greet again"]);
    ana.toft(&here, &["sync"]).ok();
    let (worked, said) = on_bare(&run);
    assert!(worked && said.contains("1 done"), "{said}");
    ana.toft(&here, &["land"]).says("1 landed");
    assert_eq!(ana.run(&ana.path().join("shop.git"), "git", &["show", "main:greeting"]), "bonjour\nbonjour\n");
    assert_eq!(ana.toft(&here, &["show", &second, "--json"]).data()["status"], "closed");
    let clones = fs::read_dir(bare.path().join("home/.local/share/toft/clones")).unwrap().flatten();
    assert_eq!(clones.filter(|entry| entry.path().join(".git").exists()).count(), 1);
}
