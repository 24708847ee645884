//! The oracle: the pristine truth about a drive's content, kept outside the device.
//!
//! It gets what the host submitted and what the host saw completed, in that order, and says which content a page may
//! have: now, for a read; or after a power loss. It knows nothing of how the device works.
//!
//! A change (a write, a deallocation, a write of zeroes) *overtakes* another change of the same page when it was
//! submitted after the other had completed. Changes that were under way together have no order: either may come last.

use std::fmt;

/// Content of a page: the tag of the write it comes from, or `None`, which reads as zeroes.
pub type Content = Option<u64>;

/// A point in the order of all that the host did and saw. Several may share one instant of simulated time.
pub type Step = u64;

const NEVER: Step = Step::MAX;

/// When a completed change is safe from a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As soon as it has completed: there is no write buffer, or the buffer survives.
    OnCompletion,
    /// Once a flush has completed that was submitted after the change completed, or at once with FUA.
    OnFlush,
}

/// A change of one page.
#[derive(Clone, Copy, Debug)]
struct Change {
    content: Content,
    command: u64,
    submitted: Step,
    completed: Step,
    /// It completed with an error: it may have happened or not, and no promise was made.
    failed: bool,
    durable: bool,
}

/// A command that changes pages.
#[derive(Clone, Debug)]
struct Command {
    id: u64,
    pages: Vec<u32>,
    fua: bool,
    durable_on_completion: bool,
}

/// Content that no correct drive could show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The logical page.
    pub lpn: u32,
    /// The content found.
    pub found: Content,
    /// The acceptable contents.
    pub acceptable: Vec<Content>,
    /// When it was looked at: "after the power loss", or "by a read".
    pub when: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { lpn, found, acceptable, when } = self;
        write!(f, "page {lpn} holds {found:?} {when}; acceptable would be {acceptable:?}")
    }
}

impl std::error::Error for Violation {}

/// The truth. Cloning copies only what is not settled yet: one entry for most pages.
#[derive(Clone, Debug)]
pub struct Oracle {
    durability: Durability,
    pages: Vec<Vec<Change>>,
    commands: Vec<Command>,
    /// Flushes under way: identity and submission.
    flushes: Vec<(u64, Step)>,
    /// Reads under way: identity and submission.
    reads: Vec<(u64, Step)>,
    step: Step,
    next: u64,
}

impl Oracle {
    /// The truth about a drive that is known to hold `contents`, durably.
    pub fn new(durability: Durability, contents: impl IntoIterator<Item = Content>) -> Oracle {
        let known = |content| Change { content, command: 0, submitted: 0, completed: 0, failed: false, durable: true };
        Oracle {
            durability,
            pages: contents.into_iter().map(|content| vec![known(content)]).collect(),
            commands: Vec::new(),
            flushes: Vec::new(),
            reads: Vec::new(),
            step: 0,
            next: 0,
        }
    }

    /// Logical pages.
    pub fn pages(&self) -> u32 {
        self.pages.len() as u32
    }

    fn begin(&mut self) -> (u64, Step) {
        self.step += 1;
        self.next += 1;
        (self.next, self.step)
    }

    /// The host submits a write of `pages` with this content. Returns its identity for [`Oracle::completed`].
    pub fn write(&mut self, pages: impl IntoIterator<Item = u32>, tag: u64, fua: bool) -> u64 {
        let on_completion = self.durability == Durability::OnCompletion;
        self.change(pages.into_iter().map(|lpn| (lpn, Some(tag))), fua, on_completion)
    }

    /// The host submits a write of zeroes: pages that it covers in part get `tag`, the others `None`.
    pub fn write_zeroes(&mut self, pages: impl IntoIterator<Item = (u32, Content)>, fua: bool) -> u64 {
        let on_completion = self.durability == Durability::OnCompletion;
        self.change(pages, fua, on_completion)
    }

    /// The host submits a deallocation of whole pages. Whatever the buffer, it is only promised by a flush.
    pub fn deallocate(&mut self, pages: impl IntoIterator<Item = u32>) -> u64 {
        self.change(pages.into_iter().map(|lpn| (lpn, None)), false, false)
    }

    fn change(&mut self, pages: impl IntoIterator<Item = (u32, Content)>, fua: bool, durable: bool) -> u64 {
        let (id, submitted) = self.begin();
        let mut touched = Vec::new();
        for (lpn, content) in pages {
            let change = Change { content, command: id, submitted, completed: NEVER, failed: false, durable: false };
            self.pages[lpn as usize].push(change);
            touched.push(lpn);
        }
        self.commands.push(Command { id, pages: touched, fua, durable_on_completion: durable });
        id
    }

    /// The host submits a flush.
    pub fn flush(&mut self) -> u64 {
        let (id, step) = self.begin();
        self.flushes.push((id, step));
        id
    }

    /// The host submits a read or a compare.
    pub fn read(&mut self) -> u64 {
        let (id, step) = self.begin();
        self.reads.push((id, step));
        id
    }

    /// The host sees a completion; `success`: its status.
    ///
    /// # Panics
    /// When no such command is under way.
    pub fn completed(&mut self, id: u64, success: bool) {
        self.step += 1;
        let step = self.step;
        if let Some(i) = self.reads.iter().position(|r| r.0 == id) {
            self.reads.swap_remove(i);
        } else if let Some(i) = self.flushes.iter().position(|f| f.0 == id) {
            let (_, submitted) = self.flushes.swap_remove(i);
            if success {
                for lpn in 0..self.pages.len() {
                    self.pages[lpn]
                        .iter_mut()
                        .filter(|c| c.completed < submitted && !c.failed)
                        .for_each(|c| c.durable = true);
                    self.forget_overtaken(lpn);
                }
            }
        } else {
            let i = self.commands.iter().position(|c| c.id == id).expect("a command completed that was not under way");
            let command = self.commands.swap_remove(i);
            for &lpn in &command.pages {
                let lpn = lpn as usize;
                for change in self.pages[lpn].iter_mut().filter(|c| c.command == id) {
                    change.completed = step;
                    change.failed = !success;
                    change.durable = success && (command.fua || command.durable_on_completion);
                }
                self.forget_overtaken(lpn);
            }
        }
    }

    /// Forgets changes that neither a power loss nor a read under way can bring back.
    fn forget_overtaken(&mut self, lpn: usize) {
        let oldest_read = self.reads.iter().map(|r| r.1).min().unwrap_or(NEVER);
        let changes = &mut self.pages[lpn];
        if changes.len() > 1 {
            let settled = changes.iter().filter(|c| c.durable && c.completed < oldest_read).map(|c| c.submitted).max();
            changes.retain(|c| settled.is_none_or(|by| c.completed >= by));
        }
    }

    fn acceptable(&self, lpn: u32, overtakes: impl Fn(&Change) -> bool) -> impl Iterator<Item = Content> {
        let changes = &self.pages[lpn as usize];
        let by = changes.iter().filter(|c| overtakes(c)).map(|c| c.submitted).max().unwrap_or(0);
        changes.iter().filter(move |c| c.completed >= by).map(|c| c.content)
    }

    fn check(
        &self,
        lpn: u32,
        found: Content,
        when: &'static str,
        overtakes: impl Fn(&Change) -> bool,
    ) -> Result<(), Violation> {
        if self.acceptable(lpn, &overtakes).any(|content| content == found) {
            return Ok(());
        }
        Err(Violation { lpn, found, acceptable: self.acceptable(lpn, &overtakes).collect(), when })
    }

    /// Checks what a page holds after the power was lost at this point.
    ///
    /// # Errors
    /// The content is neither that of the last durable change, nor of one that may have come after it.
    pub fn check_after_power_loss(&self, lpn: u32, found: Content) -> Result<(), Violation> {
        self.check(lpn, found, "after the power loss", |c| c.durable)
    }

    /// Checks what a read that is under way has found.
    ///
    /// # Errors
    /// The content was overtaken by a change that had completed before the read was submitted.
    ///
    /// # Panics
    /// When no such read is under way.
    pub fn check_read(&self, id: u64, lpn: u32, found: Content) -> Result<(), Violation> {
        let submitted = self.reads.iter().find(|r| r.0 == id).expect("a read brought data that was not under way").1;
        self.check(lpn, found, "by a read", |c| !c.failed && c.completed < submitted)
    }

    /// Checks the outcome of a compare that is under way, which expected `tag` in every one of `pages`.
    ///
    /// # Errors
    /// It found them equal when one can't have been, or different when all were.
    ///
    /// # Panics
    /// When no such compare is under way.
    pub fn check_compare(&self, id: u64, pages: &[u32], tag: u64, equal: bool) -> Result<(), Violation> {
        if equal {
            return pages.iter().try_for_each(|&lpn| self.check_read(id, lpn, Some(tag)));
        }
        let submitted = self.reads.iter().find(|r| r.0 == id).expect("a compare ended that was not under way").1;
        let overtakes = |c: &Change| !c.failed && c.completed < submitted;
        let certain = |&lpn: &u32| self.acceptable(lpn, overtakes).all(|content| content == Some(tag));
        if !pages.iter().all(certain) {
            return Ok(());
        }
        Err(Violation { lpn: pages[0], found: None, acceptable: vec![Some(tag)], when: "by a compare" })
    }

    /// The one content that a page can have now, if nothing is under way that would leave a choice.
    pub fn certain(&self, lpn: u32) -> Option<Content> {
        let mut acceptable = self.acceptable(lpn, |c| !c.failed && c.completed != NEVER);
        let first = acceptable.next()?;
        acceptable.all(|content| content == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_loss(oracle: &Oracle, found: Content) -> bool {
        oracle.check_after_power_loss(0, found).is_ok()
    }

    #[test]
    fn an_unflushed_write_is_old_or_new_and_a_flushed_one_is_new() {
        let mut oracle = Oracle::new(Durability::OnFlush, [Some(1)]);
        let write = oracle.write([0], 2, false);
        assert!(after_loss(&oracle, Some(1)) && after_loss(&oracle, Some(2)) && !after_loss(&oracle, None));
        let early = oracle.flush();
        oracle.completed(write, true);
        oracle.completed(early, true);
        assert!(after_loss(&oracle, Some(1)), "the flush was submitted before the write had completed");
        let flush = oracle.flush();
        oracle.completed(flush, true);
        assert!(!after_loss(&oracle, Some(1)) && after_loss(&oracle, Some(2)));
    }

    #[test]
    fn fua_and_surviving_buffers_need_no_flush_but_deallocation_does() {
        let mut oracle = Oracle::new(Durability::OnFlush, [Some(1)]);
        let write = oracle.write([0], 2, true);
        oracle.completed(write, true);
        assert!(!after_loss(&oracle, Some(1)));
        let mut oracle = Oracle::new(Durability::OnCompletion, [Some(1)]);
        let write = oracle.write([0], 2, false);
        oracle.completed(write, true);
        let deallocate = oracle.deallocate([0]);
        oracle.completed(deallocate, true);
        assert!(!after_loss(&oracle, Some(1)) && after_loss(&oracle, Some(2)) && after_loss(&oracle, None));
        let flush = oracle.flush();
        oracle.completed(flush, true);
        assert!(!after_loss(&oracle, Some(2)));
    }

    #[test]
    fn changes_that_were_under_way_together_have_no_order() {
        let mut oracle = Oracle::new(Durability::OnCompletion, [None]);
        let (a, b) = (oracle.write([0], 2, false), oracle.write([0], 3, false));
        oracle.completed(b, true);
        oracle.completed(a, true);
        assert!(after_loss(&oracle, Some(2)) && after_loss(&oracle, Some(3)) && !after_loss(&oracle, None));
        assert_eq!(oracle.certain(0), None);
    }

    #[test]
    fn a_read_sees_what_had_completed_before_it() {
        let mut oracle = Oracle::new(Durability::OnCompletion, [Some(1)]);
        let read = oracle.read();
        let write = oracle.write([0], 2, false);
        oracle.completed(write, true);
        assert!(oracle.check_read(read, 0, Some(1)).is_ok() && oracle.check_read(read, 0, Some(2)).is_ok());
        let late = oracle.read();
        assert!(oracle.check_read(late, 0, Some(1)).is_err() && oracle.check_read(late, 0, Some(2)).is_ok());
        assert!(
            oracle.check_compare(late, &[0], 2, false).is_err() && oracle.check_compare(late, &[0], 2, true).is_ok()
        );
    }

    #[test]
    fn a_failed_write_promises_nothing_and_overtakes_nothing() {
        let mut oracle = Oracle::new(Durability::OnCompletion, [Some(1)]);
        let write = oracle.write([0], 2, true);
        oracle.completed(write, false);
        assert!(after_loss(&oracle, Some(1)) && after_loss(&oracle, Some(2)));
        let flush = oracle.flush();
        oracle.completed(flush, true);
        assert!(after_loss(&oracle, Some(1)));
    }
}
