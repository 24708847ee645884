//! The live page of a served device or of a run.

use crate::failure::Failure;
use crate::output;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use tidewater_gauges::Moment;
use tidewater_live::{About, Board, Kind, Shown};
use tidewater_sim::run::OnMoment;

/// A page without a viewer: its address is taken before anything else is made.
pub struct Page {
    listener: TcpListener,
    names: Vec<String>,
}

impl Page {
    /// Takes the address, if one is given. `names`: those that requests may name besides addresses and localhost.
    ///
    /// # Errors
    /// When it is not one of this machine's loopback, or is taken.
    pub fn open(address: Option<SocketAddr>, names: &[String]) -> Result<Option<Page>, Failure> {
        let Some(address) = address else { return Ok(None) };
        let listener = tidewater_live::listen(address).map_err(|error| {
            Failure::usage(format_args!("no page at {address}: {}", crate::failure::reason(&error))).help(
                "give a loopback address with a free port, such as 127.0.0.1:8080; from elsewhere, forward it (ssh -L)",
            )
        })?;
        Ok(Some(Page { listener, names: names.to_vec() }))
    }

    /// Shows what `take` gives from now on, and says where.
    ///
    /// # Errors
    /// When the system has no room for its threads.
    pub fn show(
        self,
        about: &About,
        take: impl FnMut() -> Option<Moment> + Send + 'static,
    ) -> Result<(String, Shown), Failure> {
        let address = self.listener.local_addr().map_err(Failure::run)?;
        let shown = tidewater_live::serve(self.listener, self.names, about, take).map_err(Failure::run)?;
        Ok((format!("http://{address}/"), shown))
    }

    /// Shows the board that `take` gives, and says on standard error where.
    ///
    /// # Errors
    /// As [`Page::show`].
    pub fn of_board(self, title: &str, take: impl FnMut() -> Board + Send + 'static) -> Result<Shown, Failure> {
        let address = self.listener.local_addr().map_err(Failure::run)?;
        let shown = tidewater_live::serve_board(self.listener, self.names, title, take).map_err(Failure::run)?;
        output::tell(&format!("watch it: http://{address}/\n"));
        Ok(shown)
    }

    /// Shows a run, and says on standard error where.
    ///
    /// # Errors
    /// As [`Page::show`].
    pub fn of_run(self, title: String) -> Result<Run, Failure> {
        let latest = Arc::new(Mutex::new(Moment { state: "preparing the drive".into(), ..Moment::default() }));
        let about = About { kind: Kind::Simulation, title, promise: String::new() };
        let of = Arc::clone(&latest);
        let take = move || Some(of.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let (address, shown) = self.show(&about, take)?;
        output::tell(&format!("watch it: {address}\n"));
        Ok(Run { latest, shown })
    }
}

/// A run on its page.
pub struct Run {
    latest: Arc<Mutex<Moment>>,
    shown: Shown,
}

impl Run {
    /// Takes moments of the run.
    pub fn listener(&self) -> OnMoment {
        let latest = Arc::clone(&self.latest);
        Box::new(move |moment| *latest.lock().unwrap_or_else(PoisonError::into_inner) = moment)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.shown.finish();
    }
}
