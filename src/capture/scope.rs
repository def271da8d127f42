//! The calls in progress on this thread, and what the rewritten code does at their ends.
//!
//! A thread has a stack of (session, call) pairs. Sessions on other threads are on other stacks, so
//! that they never see each other; a future carries its scope and puts it on the stack of whichever
//! thread polls it.

use std::{
    cell::RefCell,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    probe::Receiver,
    record::{CallId, CapturedInputs},
    session::Shared,
    value::{Captured, Recorder},
};

/// How many entries the stacks of all threads have: none where no session runs.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STACK: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

#[cfg(feature = "fusion")]
thread_local! {
    /// How many backward passes this thread is in.
    static BACKWARD: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Runs a backward pass: the operations of CubeCL devices that it makes are recorded as part of one.
///
/// Without it a session recognises a backward pass by its first operation, a tensor of ones of the
/// loss's shape, and its end by the last operation that depends on it.
///
/// ```no_run
/// # use burn::tensor::{Device, Tensor};
/// # let device = Device::default().autodiff();
/// # let loss = Tensor::<1>::zeros([1], &device).require_grad();
/// let gradients = burnscope::backward(|| loss.backward());
/// ```
pub fn backward<R>(run: impl FnOnce() -> R) -> R {
    #[cfg(feature = "fusion")]
    let _marked = Marked::begin();
    run()
}

/// Says while it lives that this thread is in a backward pass.
#[cfg(feature = "fusion")]
struct Marked(());

#[cfg(feature = "fusion")]
impl Marked {
    fn begin() -> Self {
        BACKWARD.set(BACKWARD.get() + 1);
        stand_at_top();
        Self(())
    }
}

#[cfg(feature = "fusion")]
impl Drop for Marked {
    fn drop(&mut self) {
        BACKWARD.set(BACKWARD.get() - 1);
        stand_at_top();
    }
}

/// Runs something of ours, whose operations on devices no session of this thread records.
#[cfg(feature = "fusion")]
pub(crate) fn unrecorded<R>(run: impl FnOnce() -> R) -> R {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            stand_at_top();
        }
    }
    if let Some(frame) = top() {
        frame.stand(false);
    }
    let _again = Again;
    run()
}

#[cfg(feature = "fusion")]
fn stand_at_top() {
    if let Some(frame) = top() {
        frame.stand(true);
    }
}

#[derive(Clone)]
struct Frame {
    session: Arc<Shared>,
    /// The call in progress; `None` right inside `Session::run`.
    call: Option<CallId>,
    /// Larger than that of every entry below.
    number: u64,
    /// Which of the session's runs this is part of.
    run: u64,
}

impl Frame {
    /// Tells the session's devices where this thread is, or that it is elsewhere.
    #[cfg(feature = "fusion")]
    fn stand(&self, here: bool) {
        let place = super::fusion::Place {
            run: self.run,
            call: self.call,
            backward: BACKWARD.get() > 0,
        };
        self.session.device().moved(here.then_some(place));
    }

    #[cfg(not(feature = "fusion"))]
    fn stand(&self, _: bool) {}
}

/// Whether any session runs: all that a scope costs while none does.
#[inline(always)]
pub fn active() -> bool {
    RUNNING.load(Ordering::Relaxed) != 0
}

/// Keeps something on this thread's stack while it lives.
///
/// Holds the entry's number, since guards may be dropped in any order.
pub struct Entered(Option<u64>);

impl Entered {
    fn push(session: &Arc<Shared>, call: Option<CallId>, run: u64) -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        let (before, frame) = STACK.with_borrow_mut(|stack| {
            let before = stack.last().cloned();
            let frame = Frame {
                session: session.clone(),
                call,
                number: before.as_ref().map_or(0, |frame| frame.number + 1),
                run,
            };
            stack.push(frame.clone());
            (before, frame)
        });
        if let Some(before) = before
            && !Arc::ptr_eq(&before.session, session)
        {
            before.stand(false);
        }
        frame.stand(true);
        Self(Some(frame.number))
    }
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            RUNNING.fetch_sub(1, Ordering::Relaxed);
            let (removed, top) = STACK.with_borrow_mut(|stack| {
                let place = stack.iter().rposition(|frame| frame.number == number);
                (
                    place.map(|place| stack.remove(place)),
                    stack.last().cloned(),
                )
            });
            if let Some(removed) = removed {
                removed.stand(false);
                if let Some(top) = top {
                    top.stand(true);
                }
            }
        }
    }
}

/// Puts a session on this thread's stack, to record what is called from now on.
pub(crate) fn stay(session: &Arc<Shared>) -> Entered {
    Entered::push(session, None, session.next_run())
}

/// Records nothing on this thread, for any session, until the result is dropped.
pub(crate) fn outside() -> Outside {
    let stack = STACK.take();
    if let Some(top) = stack.last() {
        top.stand(false);
    }
    Outside(stack)
}

/// What this thread was in; made by [`outside`].
pub(crate) struct Outside(Vec<Frame>);

impl Drop for Outside {
    fn drop(&mut self) {
        let stack = std::mem::take(&mut self.0);
        if let Some(top) = stack.last() {
            top.stand(true);
        }
        STACK.set(stack);
    }
}

fn top() -> Option<Frame> {
    STACK.with_borrow(|stack| stack.last().cloned())
}

/// Whether the call about to begin is a root call of a session that wants no gradients, and
/// `autodiff` holds of its module.
pub(crate) fn gradients_unwanted(autodiff: impl FnOnce() -> bool) -> bool {
    if !cfg!(feature = "autodiff") {
        return false;
    }
    let Some(frame) = top() else { return false };
    let options = frame.session.options();
    let unwanted = frame.call.is_none() && !options.gradients && options.annotations && autodiff();
    if unwanted {
        let note =
            "the model ran without gradients: SessionBuilder::gradients(true) leaves them on";
        frame.session.record().note(note.to_owned());
    }
    unwanted
}

/// One recorded call, from its beginning to its return.
///
/// Dropped without [`Scope::returned`], by a panic or an abandoned future, it marks the call incomplete.
pub struct Scope {
    session: Arc<Shared>,
    call: CallId,
    run: u64,
    over: bool,
}

impl Scope {
    /// Records the result and ends the call, unless the callee has done it already.
    pub fn returned(mut self, outputs: impl FnOnce(&mut Recorder<'_>) -> Captured) {
        self.over = true;
        let (session, call) = (&self.session, self.call);
        // Each in a statement of its own: the session must not be locked while a value is looked at.
        let over = session.record().is_over(call);
        if over {
            return;
        }
        let wanted = session.record().wants(call);
        let outputs = wanted.then(|| outputs(&mut Recorder::new(session)));
        session.record().returned(session.options(), call, outputs);
        if let Some(why) = session.watch_call(call) {
            // What the session was asked for: the program ends here.
            panic!("{why}");
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if !self.over {
            let panicking = std::thread::panicking();
            let options = self.session.options();
            self.session
                .record()
                .abandoned(options, self.call, panicking);
        }
    }
}

/// Collects the inputs of a call.
pub struct InputRecorder<'s> {
    recorder: Recorder<'s>,
    inputs: CapturedInputs,
}

impl InputRecorder<'_> {
    /// Adds an input under its parameter's name.
    pub fn named(&mut self, name: &str, value: impl FnOnce(&mut Recorder<'_>) -> Captured) {
        let value = value(&mut self.recorder);
        self.inputs.push((Some(name.to_owned()), value));
    }

    /// Adds an input without a name.
    pub fn positional(&mut self, value: impl FnOnce(&mut Recorder<'_>) -> Captured) {
        let value = value(&mut self.recorder);
        self.inputs.push((None, value));
    }
}

/// Begins a call of the method that runs now, on this thread's session if it has one.
#[cold]
#[inline(never)]
pub fn enter_scope(
    receiver: Receiver,
    method: &str,
    inputs: impl FnOnce(&mut InputRecorder<'_>),
) -> Option<Scope> {
    let Frame {
        session, call, run, ..
    } = top()?;
    let options = session.options();
    if !options.annotations {
        return None;
    }
    let announced = call.filter(|call| session.record().announced(*call, &receiver, method));
    if let Some(call) = announced {
        let (wanted, seen) = {
            let mut record = session.record();
            let wanted = record.adopt(options, call, receiver);
            (wanted, record.take_waiting(call))
        };
        let recorder = Recorder::reusing(&session, seen);
        let inputs = collect(recorder, wanted, inputs);
        session.record().inputs(options, call, inputs, false);
        return Some(Scope {
            session,
            call,
            run,
            over: false,
        });
    }
    begin(session, (call, run), receiver, method, None, inputs)
}

/// Begins a call that was seen where it is made.
#[cold]
#[inline(never)]
pub fn enter_call(
    receiver: Receiver,
    method: &str,
    hint: &str,
    inputs: impl FnOnce(&mut InputRecorder<'_>),
) -> Option<Scope> {
    let Frame {
        session, call, run, ..
    } = top()?;
    if !session.options().annotations {
        return None;
    }
    begin(session, (call, run), receiver, method, Some(hint), inputs)
}

/// `hint` is there for a call that the callee may still take over.
fn begin(
    session: Arc<Shared>,
    (parent, run): (Option<CallId>, u64),
    receiver: Receiver,
    method: &str,
    hint: Option<&str>,
    inputs: impl FnOnce(&mut InputRecorder<'_>),
) -> Option<Scope> {
    let options = session.options();
    let begun = session
        .record()
        .begin(options, parent, receiver, method, hint);
    let (call, wanted) = begun?;
    let inputs = collect(Recorder::new(&session), wanted, inputs);
    session
        .record()
        .inputs(options, call, inputs, hint.is_some());
    Some(Scope {
        session,
        call,
        run,
        over: false,
    })
}

/// The session is not locked here: a value's `Debug` may run any code.
fn collect(
    recorder: Recorder<'_>,
    wanted: bool,
    inputs: impl FnOnce(&mut InputRecorder<'_>),
) -> CapturedInputs {
    let mut collected = InputRecorder {
        recorder,
        inputs: Vec::new(),
    };
    if wanted {
        inputs(&mut collected);
    }
    collected.inputs
}

/// Makes a call the current one of this thread until the result is dropped.
#[inline(always)]
pub fn enter(scope: Option<&Scope>) -> Entered {
    match scope {
        Some(scope) => Entered::push(&scope.session, Some(scope.call), scope.run),
        None => Entered(None),
    }
}

/// Makes a call the current one whenever `future` is polled.
pub async fn in_scope<F: Future>(scope: Option<&Scope>, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        let _entered = enter(scope);
        future.as_mut().poll(context)
    })
    .await
}

/// Calls a closure once, so that it may give away what it captured.
#[inline(always)]
pub fn once<R>(body: impl FnOnce() -> R) -> R {
    body()
}
