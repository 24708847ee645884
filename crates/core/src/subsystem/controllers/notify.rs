//! Events that hosts are notified of.

use super::Controllers;
use crate::subsystem::context::Context;
use crate::subsystem::queues::Posting;
use tidewater_wire::nvme::{Event, Status};

impl Controllers {
    /// Something has happened that a controller's host is to know.
    #[cold]
    pub(crate) fn raise(&mut self, cx: &mut Context, function: u8, event: Event) {
        if cx.state.features.tells(function, event) {
            self[function].events.add(event);
            self.tell_events(cx, function);
        }
    }

    /// Events go out as far as there are requests for them.
    pub(crate) fn tell_events(&mut self, cx: &mut Context, function: u8) {
        while let Some((cid, event)) = self[function].events.next() {
            self.post(cx, function, Posting::new(0, cid, Status::SUCCESS, event.dword()), None);
        }
    }

    /// Something has happened that every host is to know.
    pub(crate) fn raise_everywhere(&mut self, cx: &mut Context, event: Event) {
        for function in self.numbers() {
            if self[function].live {
                self.raise(cx, function, event);
            }
        }
    }

    /// Identify's data of a namespace has changed: all controllers that it is attached to are notified.
    pub(crate) fn tell_namespace_changed(&mut self, cx: &mut Context, nsid: u32) {
        let Ok(attached) = cx.state.namespaces.at(nsid).map(|ns| ns.attached) else { return };
        for function in attached.iter() {
            self.tell_controller_of_namespace(cx, function, nsid);
        }
    }

    /// A namespace has come, gone or changed, as far as a controller is concerned.
    pub(crate) fn tell_controller_of_namespace(&mut self, cx: &mut Context, function: u8, nsid: u32) {
        if let Some(c) = self.get_mut(function).filter(|c| c.live) {
            c.changed.add(nsid);
            self.raise(cx, function, Event::NamespaceAttributeChanged);
        }
    }

    /// A doorbell was rung wrongly, or a host was silent: the error belongs to no command.
    #[cold]
    pub(crate) fn log_error(&mut self, cx: &mut Context, function: u8, queue: u16) {
        let count = cx.state.smart.error();
        let c = &mut self[function];
        c.errors.of_queue(count, queue, c.transport);
    }
}
