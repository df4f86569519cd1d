//! N library cycles on a store that is kept.
use toft::Query;
use toft_bench::fill;
fn main() {
    let n: usize = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(3000);
    let path = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let toft = fill::fill(&path, n * 2).unwrap();
    let me = toft.agent("bench").register().unwrap();
    let t = std::time::Instant::now();
    for _ in 0..n {
        let job = me.claim(Query::ready()).unwrap().unwrap();
        job.done("m").evidence("c").commit().unwrap();
    }
    eprintln!("{:?} per cycle", t.elapsed() / n as u32);
}
