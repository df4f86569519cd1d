//! What a pair of servers refuses. That it keeps what was committed, stories of the kind `fleet` tell.

use toft_cluster::Pair;

#[test]
#[ignore = "wide: a pair of servers"]
#[should_panic(expected = "no standby")]
fn does_not_fail_over_to_a_dead_server() {
    assert!(toft_cluster::available(), "no standby");
    let mut pair = Pair::start();
    pair.fail_over();
    pair.fail_over();
}
