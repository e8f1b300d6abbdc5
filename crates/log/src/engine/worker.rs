//! The flush worker: a thread of each serving process that drains lanes in the background.
//!
//! It drains a lane that has many chunks (the high watermark), and a lane that was idle for a
//! moment. When most of the pool is allocated it drains every lane. It also drains the lanes of
//! processes that died.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::engine::lane::Lane;
use crate::engine::pool::LANE_CHUNKS_HIGH;
use crate::engine::service::Service;
use crate::engine::wakeup::Wakeup;
use crate::words::LaneWords;
use crate::{LogError, Result, StreamId};

/// How often the worker looks.
const TICK: Duration = Duration::from_millis(50);
/// A lane is drained if nothing was appended to it for so long.
const IDLE: Duration = Duration::from_secs(5);
/// How often the worker looks for lanes of processes that died.
const ORPHANS: Duration = Duration::from_secs(1);

/// The thread, until it is dropped.
pub(crate) struct Worker {
    wakeup: Arc<Wakeup>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread that runs `round` at each tick, and at each `wakeup`.
    pub(crate) fn start(
        wakeup: Arc<Wakeup>,
        mut round: impl FnMut() + Send + 'static,
    ) -> Result<Worker> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let (its_wakeup, its_end) = (wakeup.clone(), is_ending.clone());
        let run = move || {
            while !its_end.load(Ordering::Acquire) {
                its_wakeup.wait(TICK);
                round();
            }
        };
        let thread =
            std::thread::Builder::new().name("log-flush".into()).spawn(crate::faults::carry(run));
        let thread = thread.map_err(|e| LogError::system("starting the flush worker", e))?;
        Ok(Worker { wakeup, is_ending, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        self.wakeup.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the worker was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The rounds of a worker, and what it has seen in them.
pub(crate) struct Rounds {
    /// For each lane: its end at the last look, and since when it has had that end.
    seen: HashMap<StreamId, (u64, Instant)>,
    swept: Instant,
}

impl Rounds {
    /// The rounds of a worker that has seen nothing yet.
    pub(crate) fn new() -> Rounds {
        Rounds { seen: HashMap::new(), swept: Instant::now() }
    }

    /// Drains the lanes that are due.
    pub(crate) fn round(&mut self, service: &Service) {
        let pool = service.host.settings().chunk_count as usize;
        let is_tight = service.allocated_count() * 4 >= pool * 3;
        for lane in service.open_lanes() {
            if self.wants_drain(service, &lane, is_tight) {
                // Latched in the lane, or tried again; reported to the next append or sync.
                let _ = service.drain_if_free(&lane);
            }
        }
        if self.swept.elapsed() >= ORPHANS {
            self.swept = Instant::now();
            service.sweep();
            let open = service.open_lanes();
            let is_open = |stream| open.iter().any(|lane| lane.identity().stream == stream);
            self.seen.retain(|stream, _| is_open(*stream));
        }
    }

    fn wants_drain(&mut self, service: &Service, lane: &Lane, is_tight: bool) -> bool {
        if lane.check().is_err() {
            return false;
        }
        if lane.pull().is_err() {
            // The drain finds out and aborts the lane.
            return true;
        }
        let (appended, undrained_bytes) = undrained(&lane.words);
        let now = Instant::now();
        let (end, since) = self.seen.entry(lane.identity().stream).or_insert((appended, now));
        if *end != appended {
            (*end, *since) = (appended, now);
        }
        let is_idle = since.elapsed() >= IDLE;
        if undrained_bytes == 0 {
            // Nothing to write. But when the pool is tight, the last chunk of an idle lane is
            // freed.
            return is_tight && is_idle && !lane.words.chunks().is_empty();
        }
        let high = LANE_CHUNKS_HIGH as u64 * service.host.settings().chunk_bytes;
        is_tight || is_idle || undrained_bytes >= high
    }
}

/// The end of a lane, and how many bytes before it are not drained. At the same time, others may
/// append, drain, or give up what is damaged.
fn undrained(words: &LaneWords) -> (u64, u64) {
    let drained = words.drained();
    let appended = words.appended();
    (appended, appended.saturating_sub(drained))
}

#[cfg(test)]
mod tests {
    use device::SharedWords;

    use super::*;

    #[test]
    fn a_lane_that_others_drain_meanwhile_does_not_end_the_worker() {
        let words = SharedWords::anonymous(LaneWords::COUNT).expect("words");
        let words = LaneWords::new(Arc::new(words));
        words.spoil_drained(64);
        assert_eq!(undrained(&words), (0, 0));
        words.appender().publish_appended(164, 1, 100, 1);
        assert_eq!(undrained(&words), (164, 100));
    }
}
