//! The bridge from asynchronous protocols to answers that take their time.

/// Runs something that may wait for disks and other processes.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    // What panicked has no answer.
    tokio::task::spawn_blocking(work).await.ok()
}
