//! Turns SIGBUS of a mapped file into an error.
//!
//! SIGBUS is raised by an access after the end of a file that was made shorter, and by an access to
//! memory that the machine has lost. By default it ends the process. The handler here maps zeros in
//! place of the mapping and marks the mapping as *lost*; the access then continues and finds zeros.
//! The user of the mapping asks [`Span::is_lost`] **after** the access, before it trusts what it
//! read or reports what it stored.
//!
//! This code runs inside of other programs, so:
//!
//! 1. The handler acts on addresses of registered mappings only. It passes every other SIGBUS to
//!    the previous handler, or to the default.
//! 2. It is installed with the first mapping. It is removed with the last one if it is still the
//!    process's handler. If another handler was installed over it, it stays, and is not installed
//!    again: the other one may call it.
//! 3. It calls nothing but mmap(2), sigaction(2) and tgkill(2), takes no lock and allocates
//!    nothing.
//!
//! Two cases still end the process: a thread that blocks SIGBUS, and a handler of the program that
//! was installed later and does not call the previous one.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Number of spans in one block of the table.
const BLOCK_SPANS: usize = 64;
/// Stands in place of a start while the entry is being filled.
const TAKEN: usize = 1;

/// One mapping.
pub(crate) struct Span {
    /// 0: free.
    start: AtomicUsize,
    len_bytes: AtomicUsize,
    is_lost: AtomicBool,
}

/// A part of the table of mappings. Blocks are never freed, so the handler can read them at any
/// time. The table has room for the largest number of mappings that existed at once.
struct Block {
    spans: [Span; BLOCK_SPANS],
    next: AtomicPtr<Block>,
}

static FIRST: Block = Block::new();

/// Whether the handler may be reached. Changed only with the lock.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// The process of the thread that holds the lock, or 0. Held while mappings are added or removed.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// Holds the lock until it is dropped.
struct Lock;

impl Lock {
    /// Waits for other threads of this process. If the holder is another process, it is a thread of
    /// the parent that does not exist in this forked child.
    fn take() -> Lock {
        let me = std::process::id();
        loop {
            let held = HOLDER.load(Ordering::Relaxed);
            let is_free = held != me;
            let take = || HOLDER.compare_exchange(held, me, Ordering::Acquire, Ordering::Relaxed);
            if is_free && take().is_ok() {
                return Lock;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

/// The previous handler, a `libc::sigaction` that is never freed, and that the next installation
/// uses again if it finds the same handler; null before the first installation.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

impl Span {
    const fn new() -> Span {
        let (start, len_bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Span { start, len_bytes, is_lost: AtomicBool::new(false) }
    }

    /// Registers a mapping of `len_bytes` bytes at `start`, until [`Span::release`].
    pub(crate) fn register(start: *mut u8, len_bytes: usize) -> &'static Span {
        let _lock = Lock::take();
        if !IS_INSTALLED.load(Ordering::Relaxed) {
            IS_INSTALLED.store(install(), Ordering::Relaxed);
        }
        let span = free_span();
        span.len_bytes.store(len_bytes, Ordering::Release);
        span.is_lost.store(false, Ordering::Release);
        span.start.store(start.addr(), Ordering::Release);
        span
    }

    /// Removes the mapping from the table. Call it before the mapping is unmapped, because another
    /// mapping may then get its addresses.
    pub(crate) fn release(&self) {
        let _lock = Lock::take();
        self.start.store(0, Ordering::Release);
        let is_free = |span: &Span| span.start.load(Ordering::Relaxed) == 0;
        let is_last = blocks().flat_map(|block| &block.spans).all(is_free);
        if is_last && IS_INSTALLED.load(Ordering::Relaxed) {
            IS_INSTALLED.store(!uninstall(), Ordering::Relaxed);
        }
    }

    /// Whether zeros have replaced the file. If so, everything that was read or stored since then
    /// is meaningless.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        // What was read before is read before this.
        std::sync::atomic::fence(Ordering::Acquire);
        self.is_lost.load(Ordering::Acquire)
    }

    /// The mapping, if it contains this address.
    fn find(&self, address: usize) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::Acquire);
        let len_bytes = self.len_bytes.load(Ordering::Acquire);
        // A mapping cannot go while it is accessed. Another one may have come and gone between the
        // two loads.
        let is_steady = self.start.load(Ordering::Acquire) == start;
        let is_in = start > TAKEN && address.wrapping_sub(start) < len_bytes;
        (is_steady && is_in).then_some((start, len_bytes))
    }
}

impl Block {
    const fn new() -> Block {
        let spans = [const { Span::new() }; BLOCK_SPANS];
        Block { spans, next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Block> {
        // SAFETY: null, or a block that was leaked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

fn blocks() -> impl Iterator<Item = &'static Block> {
    std::iter::successors(Some(&FIRST), |block| block.next())
}

/// An entry that is not in use. The caller holds the lock.
fn free_span() -> &'static Span {
    let mut last = &FIRST;
    for block in blocks() {
        for span in &block.spans {
            let taken = span.start.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                return span;
            }
        }
        last = block;
    }
    let block: &'static Block = Box::leak(Box::new(Block::new()));
    block.spans[0].start.store(TAKEN, Ordering::Release);
    last.next.store(ptr::from_ref(block).cast_mut(), Ordering::Release);
    &block.spans[0]
}

/// The address of the handler, as the kernel knows it.
fn handler() -> libc::sighandler_t {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus;
    handler as libc::sighandler_t
}

/// Installs the handler. Returns whether that succeeded.
fn install() -> bool {
    // SAFETY: all zeros are a `sigaction`: the default, no flags, nothing blocked.
    let mut ours: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    ours.sa_sigaction = handler();
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // The previous action is known before our handler can be called.
    // SAFETY: a null action asks only; the second pointer is valid.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) } != 0 {
        return false;
    }
    if before.sa_sigaction == handler() {
        return true;
    }
    // A handler that was there may need a stack of its own (a thread's stack overflow).
    let kept = before.sa_flags & (libc::SA_RESTART | libc::SA_NODEFER);
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | kept;
    ours.sa_mask = before.sa_mask;
    // SAFETY: null, or set here and never freed.
    let known = unsafe { BEFORE.load(Ordering::Acquire).as_ref() };
    // Not freed: the handler may be reading it. Nearly always there is only one.
    if known.is_none_or(|known| !is_same(known, &before)) {
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
    }
    // SAFETY: both are valid; `on_bus` keeps to what a handler may do.
    unsafe { libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut()) == 0 }
}

fn is_same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    // SAFETY: both are initialised.
    let has =
        |action: &libc::sigaction, signal| unsafe { libc::sigismember(&action.sa_mask, signal) };
    // The kernel fills no more of the mask than that.
    let mut signals = 1..=libc::SIGRTMAX();
    // One that was restored also has the C library's own flag.
    let flags = libc::SA_SIGINFO
        | libc::SA_ONSTACK
        | libc::SA_RESTART
        | libc::SA_NODEFER
        | libc::SA_RESETHAND;
    one.sa_sigaction == other.sa_sigaction
        && one.sa_flags & flags == other.sa_flags & flags
        && signals.all(|signal| has(one, signal) == has(other, signal))
}

/// Restores the previous handler, if ours is the process's. Returns whether it was.
fn uninstall() -> bool {
    // SAFETY: all zeros are a `sigaction`.
    let mut found: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: as in `install`.
    let asked = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut found) };
    if asked != 0 || found.sa_sigaction != handler() {
        return false;
    }
    // SAFETY: set by `install`, never freed.
    unsafe { libc::sigaction(libc::SIGBUS, BEFORE.load(Ordering::Acquire), ptr::null_mut()) == 0 }
}

extern "C" fn on_bus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's information, as SA_SIGINFO asks for it.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // One that was sent by kill(2) has no address.
    if code > 0 && replace(address) {
        return;
    }
    pass_on(signal, info, context, code);
}

/// Puts zeros in place of the registered mapping that contains this address. Returns whether there
/// is one.
fn replace(address: usize) -> bool {
    for span in blocks().flat_map(|block| &block.spans) {
        let Some((start, len_bytes)) = span.find(address) else { continue };
        // Before the zeros can be read.
        span.is_lost.store(true, Ordering::Release);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let to: *mut c_void = ptr::with_exposed_provenance_mut(start);
        // SAFETY: exactly the span of one of our mappings, which lives as it is being accessed.
        // Pointers into it still lead to memory that can be read and written, by atomics and copies
        // only.
        let mapped = unsafe { mmap(to, len_bytes, protection, flags) };
        return mapped;
    }
    false
}

/// Maps without changing this thread's `errno`, which the interrupted code may be about to read.
///
/// # Safety
/// As mmap(2) with `MAP_FIXED`.
unsafe fn mmap(to: *mut c_void, len_bytes: usize, protection: c_int, flags: c_int) -> bool {
    // SAFETY: a thread's own `errno`.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let mapped = libc::mmap(to, len_bytes, protection, flags, -1, 0);
        *errno = before;
        mapped != libc::MAP_FAILED
    }
}

/// Does what would happen without this handler.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    // SAFETY: set before the handler was installed, never freed.
    let Some(before) = (unsafe { BEFORE.load(Ordering::Acquire).as_ref() }) else { return };
    match before.sa_sigaction {
        // The kernel does not let a fault be ignored.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeros are the default action.
            let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            // SAFETY: valid pointers. A fault comes again when this returns; what was sent is sent
            // again.
            unsafe {
                libc::sigaction(signal, &default, ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the handler was installed with this flag, which says that it is such a
            // function.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the handler was installed without that flag, which says that it is such a
            // function.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
