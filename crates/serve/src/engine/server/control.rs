//! Requests of other threads: those of the control socket, and the live page's.

use super::Server;
use crate::control::{Answer, Request};
use crate::engine::views::{About, live, metrics, status};
use crate::engine::{Engine, Message, PciFunction, Turn, off_of};
use std::sync::mpsc::Sender;
use tidewater_core::drive::Clock as _;

impl Server {
    pub(super) fn take_mail(&mut self) -> bool {
        let mut any = false;
        while let Some(message) = self.engine.mail.take() {
            match message {
                Message::Control(request, answer) => {
                    any = true;
                    // What is asked next finds the fault armed.
                    let is_fault = request.fault().is_some();
                    let _ = match self.control(&request, &answer) {
                        Some(said) => answer.send(said),
                        None => Ok(()), // Answered later.
                    };
                    if is_fault {
                        break;
                    }
                }
                // To look is no reason to stay awake.
                Message::Moment(answer) => {
                    let _ = answer.send(live::moment(self.firmware.as_ref(), &self.engine, &self.about()));
                }
            }
        }
        any
    }

    /// Carries a request out. `None`: the answer comes when the device has ended.
    fn control(&mut self, request: &Request, answer: &Sender<Answer>) -> Option<Answer> {
        if !matches!(request, Request::Status | Request::Metrics) {
            tracing::debug!(?request, "request of the control socket");
        }
        let text = |text: String| Ok(serde_json::Map::from_iter([("text".to_owned(), text.into())]));
        self.engine.cx.now = self.clock.now();
        let Engine { cx, faults, .. } = &mut self.engine;
        if let Some(answer) = faults.answer(cx, self.firmware.as_mut(), request) {
            return Some(answer);
        }
        match *request {
            Request::Status => Some(Ok(status::status(self.firmware.as_ref(), &self.engine, self.about()))),
            Request::Metrics => Some(text(metrics::page(self.firmware.as_ref(), &self.engine, self.about()))),
            Request::GroupForm { .. }
            | Request::GroupPromote { .. }
            | Request::GroupDemote { .. }
            | Request::GroupLeave { .. }
            | Request::GroupRebuild { .. }
            | Request::GroupLead { .. } => self.group_order(request, answer),
            Request::Stop => {
                self.begin_ending(Some(answer.clone()));
                None
            }
            Request::PowerCut { .. } if self.firmware.is_none() => Some(Err("the power is off already".into())),
            Request::PowerCut { off_ms } => {
                Some(off_of(off_ms).and_then(|off| self.cut_power(off).map_err(|error| error.to_string())).and_then(
                    |lost| {
                        text(format!(
                            "the power was cut; {lost} pages held only in volatile memory are lost; power returns in \
                             {off_ms} ms"
                        ))
                    },
                ))
            }
            Request::LinkLoss { function } => Some(match self.engine.hosts.functions.get(function) {
                Some(PciFunction { connection: Some(connection), .. }) => {
                    connection.close();
                    Ok(Default::default())
                }
                Some(_) => Err(format!("no client is attached to function {function}")),
                None => Err(format!("there is no function {function}")),
            }),
            _ => Some(Err("internal error: this fault was not injected".into())),
        }
    }

    /// Passes on what an operator wants of a function's group. `None`: the answer comes with the firmware's.
    fn group_order(&mut self, request: &Request, answer: &Sender<Answer>) -> Option<Answer> {
        let Some(firmware) = &self.firmware else { return Some(Err("the power is off".into())) };
        let wall = self.wall();
        let (cx, storage) = (&mut self.engine.cx, &self.engine.storage);
        cx.now = self.clock.now();
        self.engine.group.order(&mut Turn { cx, firmware }, storage, (request, answer), wall)
    }

    fn about(&self) -> About {
        About {
            name: self.drive.profile.name.clone(),
            timing: self.drive.profile.serve.timing,
            wall: self.started.elapsed(),
            power_cuts: self.power.cuts,
            ending: self.ending.is_some(),
            now: self.clock.now(),
        }
    }
}
