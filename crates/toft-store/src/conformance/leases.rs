//! Leases: one for each task, found by every query of the rules.

use toft_core::{
    change::Write,
    id::{AgentId, LeaseId, RepositoryId, TaskId, WorkflowId},
    lease::{Fence, Holder, Lease},
    store::{Access, LeasesOf},
    time::Timestamp,
};

use super::{
    Pair,
    fields::{base, lease, task},
};

fn held(pair: &Pair, tasks: &[&str]) {
    pair.write(&base());
    for id in tasks {
        pair.write(&[Write::Task(task(id, "wf_1"))]);
    }
}

pub fn a_task_has_at_most_one_lease(pair: &Pair) {
    held(pair, &[]);
    pair.write(&[Write::Lease(lease("tk_1"))]);
    let second = Lease { fence: Fence { number: 6, id: LeaseId::known("ls_other") }, ..lease("tk_1") };
    let mut tx = pair.writer.begin(Access::Write).unwrap();
    assert!(tx.write_derived(&[Write::Lease(second)]).is_err());
    drop(tx);
    assert_eq!(pair.read(|tx| tx.lease(&TaskId::known("tk_1"))), Some(lease("tk_1")));
}

pub fn a_renewal_names_its_lease(pair: &Pair) {
    held(pair, &[]);
    pair.write(&[Write::Lease(lease("tk_1"))]);
    let stale = Lease {
        fence: Fence { number: 5, id: LeaseId::known("ls_stale") },
        check_at: 1,
        renewed: Timestamp(1),
        ..lease("tk_1")
    };
    pair.write(&[Write::RenewLease(stale)]);
    assert_eq!(pair.read(|tx| tx.lease(&TaskId::known("tk_1"))), Some(lease("tk_1")));
    pair.write(&[Write::DropLease(TaskId::known("tk_1"))]);
    pair.write(&[Write::RenewLease(lease("tk_1"))]);
    assert_eq!(pair.read(|tx| tx.lease(&TaskId::known("tk_1"))), None);
}

pub fn leases_are_found_by_agent_workflow_and_repository(pair: &Pair) {
    held(pair, &["tk_2"]);
    let other = Lease {
        agent: AgentId::known("ag_2"),
        workflow: WorkflowId::known("wf_2"),
        repository: None,
        holder: None,
        ..lease("tk_2")
    };
    pair.write(&[Write::Lease(lease("tk_1")), Write::Lease(other.clone())]);
    let one = [lease("tk_1")];
    assert_eq!(pair.read(|tx| tx.leases(&LeasesOf::Agent(AgentId::known("ag_1")))), one);
    assert_eq!(pair.read(|tx| tx.leases(&LeasesOf::Workflow(WorkflowId::known("wf_1")))), one);
    assert_eq!(pair.read(|tx| tx.leases(&LeasesOf::Repository(Some(RepositoryId::known("rp_a"))))), one);
    assert_eq!(pair.read(|tx| tx.leases(&LeasesOf::Repository(None))), [lease("tk_1"), other]);
}

pub fn leases_due_for_a_look_are_found(pair: &Pair) {
    held(pair, &["tk_2", "tk_3"]);
    let later = Lease { check_at: 500, ..lease("tk_2") };
    let elsewhere = Holder { host: "there".into(), boot: "boot-1".into(), pid: 42, started: 99 };
    let foreign = Lease { check_at: 900, holder: Some(elsewhere), ..lease("tk_3") };
    pair.write(&[Write::Lease(lease("tk_1")), Write::Lease(later), Write::Lease(foreign)]);
    let due = |ms, host, limit| {
        let leases = pair.read(|tx| tx.overdue(Timestamp(ms), host, limit));
        leases.into_iter().map(|lease| lease.task.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(due(79, None, 9), [""; 0]);
    assert_eq!(due(80, None, 9), ["tk_1"]);
    assert_eq!(due(500, None, 9), ["tk_1", "tk_2"]);
    assert_eq!(due(500, None, 1), ["tk_1"]);
    assert_eq!(due(0, Some("here"), 0), ["tk_1", "tk_2"]);
    assert_eq!(due(0, Some("her"), 0), [""; 0]);
}
