//! Requests of other threads to the device's thread, and how they wait for its answers.

use crate::control::{Answer, Request};
use crate::inbox::Inbox;
use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration as WallDuration;
use tidewater_gauges::Moment;

/// How long control and metrics wait for the device's thread.
const ANSWER_TIME: WallDuration = WallDuration::from_secs(30);
/// How long the live page waits for it.
const MOMENT_TIME: WallDuration = WallDuration::from_secs(1);

/// Requests of other threads to the device's.
pub enum Message {
    /// A request of the control socket.
    Control(Request, Sender<Answer>),
    /// State of the device now.
    Moment(Sender<Moment>),
}

/// Asks a device what it is doing, from other threads.
#[derive(Clone)]
pub struct Moments(pub(crate) Inbox<Message>);

impl Moments {
    /// Its state now; `None`: it does not answer within a second.
    pub fn take(&self) -> Option<Moment> {
        let (sender, receiver) = channel();
        self.0.send(Message::Moment(sender));
        receiver.recv_timeout(MOMENT_TIME).ok()
    }
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Moments")
    }
}

impl Message {
    /// Asks, and waits for the answer.
    pub fn ask(mail: &Inbox<Message>, request: Request) -> Answer {
        let (sender, receiver) = channel();
        mail.send(Message::Control(request, sender));
        receiver.recv_timeout(ANSWER_TIME).unwrap_or_else(|_| Err("the device did not answer".into()))
    }

    /// The page of metrics.
    pub fn metrics(mail: &Inbox<Message>) -> Option<String> {
        let answer = Message::ask(mail, Request::Metrics).ok()?;
        answer.get("text").and_then(|text| text.as_str()).map(str::to_owned)
    }
}
