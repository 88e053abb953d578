//! Waiting for the bus in a thread that may block.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};

use super::bus::{Bus, BusError, Call};

/// Waits for a call. The calls of a bus do not depend on the runtime of the caller, so the thread may block.
pub(super) fn wait<T: Send>(bus: &dyn Bus, call: Call<'_, T>) -> Result<T, BusError> {
    let mut result = Err(BusError::Timeout);
    bus.block(Box::pin(async { result = call.await }));
    result
}

/// Blocks this thread until a future ends.
pub fn block_on(future: impl Future<Output = ()>) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    while future.as_mut().poll(&mut context).is_pending() {
        thread::park();
    }
}
