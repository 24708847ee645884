//! Write policies that are Python objects.
//!
//! A run with one of them is on its caller's thread: a debugger, a profiler and Ctrl-C see the policy's methods as
//! those of any other program. The interpreter's lock is taken for each call, and held in no other part of the run.

use crate::errors;
use crate::frame::Data;
use crate::record::Run;
use crate::run::{Given, make, with_part};
use crate::work::{Shared, attach, here, wait};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyRange, PyString};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidewater_core::buffer::conformance::{self, Failure as Broken};
use tidewater_core::buffer::{Fault, Outside, Part, Policy, Run as Pages, Setting, Victim};
use tidewater_core::profile::Profile;
use tidewater_core::{Device, SetupError};
use tidewater_study::{Failure, FindPolicy, Subject};

/// The exception that was raised last, until the caller gets it. While there is one, no policy is asked.
#[derive(Clone, Default)]
struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn lock(&self) -> MutexGuard<'_, Option<PyErr>> {
        // Nothing that holds the lock can fail.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, error: PyErr) {
        *self.lock() = Some(error);
    }

    fn take(&self) -> Option<PyErr> {
        self.lock().take()
    }

    fn is_there(&self) -> bool {
        self.lock().is_some()
    }

    /// An exception that asks the whole program to end, as Ctrl-C does: no other policy is tried.
    fn ends_all(&self, py: Python<'_>) -> bool {
        let raised = self.lock();
        raised.as_ref().is_some_and(|error| !error.is_instance_of::<PyException>(py))
    }
}

/// A policy from outside, made by a function of Python that takes what [`Setting`] has.
fn outside(factory: Py<PyAny>, name: &str, raised: Raised) -> Outside {
    let of_policies = name.to_owned();
    Outside::new("python", name, move |setting| {
        attach(|py| {
            if raised.ends_all(py) {
                return Err(Fault::new("interrupted"));
            }
            raised.take();
            let Setting { capacity, block, units, cached, sequential, .. } = *setting;
            let made = py
                .check_signals()
                .and_then(|()| factory.bind(py).call1((capacity, block, units, cached, sequential)))
                .and_then(|object| {
                    let flag = |name: &Bound<'_, PyString>| object.getattr(name)?.is_truthy();
                    let keeps_clean = flag(intern!(py, "keeps_clean"))?;
                    let cooperates = flag(intern!(py, "cooperates"))?;
                    Ok(Object {
                        name: of_policies.clone(),
                        units,
                        keeps_clean,
                        cooperates,
                        object: object.unbind(),
                        raised: raised.clone(),
                        fault: OnceCell::new(),
                    })
                });
            match made {
                Ok(object) => Ok(Box::new(object) as Box<dyn Policy>),
                Err(error) => {
                    let fault = fault_of(py, &error);
                    raised.put(error);
                    Err(fault)
                }
            }
        })
    })
}

/// Policies by the names that plans have for them, `python:` and more; each run gets a new one.
pub fn by_name(factories: Option<HashMap<String, Py<PyAny>>>) -> Option<Arc<FindPolicy>> {
    let factories = factories?;
    Some(Arc::new(move |name: &str| {
        let factory = attach(|py| factories.get(name).map(|factory| factory.clone_ref(py)))?;
        Some(outside(factory, name.strip_prefix("python:").unwrap_or(name), Raised::default()))
    }))
}

fn fault_of(py: Python<'_>, error: &PyErr) -> Fault {
    let class = error.get_type(py).name().map_or_else(|_| "an exception".into(), |name| name.to_string());
    Fault::new(format_args!("{class}: {}", error.value(py)))
}

/// Why a call of a method has no answer.
enum Wrong {
    /// It raised an exception.
    Raised(PyErr),
    /// The returned value is no answer.
    Returned(String),
}

impl From<PyErr> for Wrong {
    fn from(error: PyErr) -> Wrong {
        Wrong::Raised(error)
    }
}

type Answer<T> = Result<T, Wrong>;

/// A Python object as a policy. After its first fault its methods are not called again.
struct Object {
    name: String,
    /// Logical pages of the drive: no list of pages is longer.
    units: u32,
    keeps_clean: bool,
    cooperates: bool,
    object: Py<PyAny>,
    raised: Raised,
    fault: OnceCell<Fault>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.name).finish()
    }
}

impl Object {
    /// A list of pages that goes on has an end.
    fn require_end(&self, call: &str, given: usize) -> Answer<()> {
        if given < self.units as usize {
            return Ok(());
        }
        Err(Wrong::Returned(format!("{call} gave more than {} pages, and the drive has no more", self.units)))
    }

    /// Calls the object; without an answer, that is its fault, and the answer is the default.
    fn ask<T: Default>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> Answer<T>) -> T {
        if self.fault.get().is_some() {
            return T::default();
        }
        if self.raised.is_there() {
            self.fault.get_or_init(|| Fault::new("interrupted"));
            return T::default();
        }
        attach(|py| {
            let answer = py.check_signals().map_err(Wrong::Raised).and_then(|()| call(self.object.bind(py)));
            answer.unwrap_or_else(|wrong| {
                let fault = match wrong {
                    Wrong::Returned(words) => Fault::new(words),
                    Wrong::Raised(error) => {
                        let fault = fault_of(py, &error);
                        self.raised.put(error);
                        fault
                    }
                };
                self.fault.get_or_init(|| fault);
                T::default()
            })
        })
    }
}

/// An answer that must be True or False.
fn truth(call: &str, answer: &Bound<'_, PyAny>) -> Answer<bool> {
    answer.extract().map_err(|_| {
        Wrong::Returned(format!(
            "{call} returned {}, where it must say whether the page is held: True or False",
            shown(answer)
        ))
    })
}

/// A value in words, cut short.
fn shown(value: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 60;
    let text = value.repr().map_or_else(|_| "a value without a repr".into(), |text| text.to_string());
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A page, where one was returned.
fn page(call: &str, answer: &Bound<'_, PyAny>) -> Answer<u32> {
    answer.extract().map_err(|_| Wrong::Returned(format!("{call} returned {}, which is no page", shown(answer))))
}

/// One of the pages that leave: its number, or a pair of its number and why it goes along.
fn leaving(answer: &Bound<'_, PyAny>, victim: &mut Victim) -> Answer<()> {
    if let Ok(lpn) = answer.extract::<u32>() {
        victim.push(lpn);
        return Ok(());
    }
    let part = match answer.extract::<(u32, String)>() {
        Ok((lpn, word)) if word == "cached" => Some((lpn, Part::Cached)),
        Ok((lpn, word)) if word == "padding" => Some((lpn, Part::Padding)),
        _ => None,
    };
    let (lpn, part) = part.ok_or_else(|| {
        Wrong::Returned(format!(
            "evict gave {}, where a page, (page, \"cached\") or (page, \"padding\") is expected",
            shown(answer)
        ))
    })?;
    victim.push_clean(lpn, part);
    Ok(())
}

impl Policy for Object {
    fn contains(&self, lpn: u32) -> bool {
        self.ask(|object| Ok(object.contains(lpn)?))
    }

    fn read(&mut self, lpn: u32) -> bool {
        self.ask(|object| truth("read", &object.call_method1(intern!(object.py(), "read"), (lpn,))?))
    }

    fn write(&mut self, lpn: u32, run: Pages, room: bool) -> bool {
        self.ask(|object| {
            let py = object.py();
            let run = PyRange::new(py, run.first as isize, run.end as isize)?;
            truth("write", &object.call_method1(intern!(py, "write"), (lpn, run, room))?)
        })
    }

    fn remove(&mut self, lpn: u32) -> bool {
        self.ask(|object| truth("remove", &object.call_method1(intern!(object.py(), "remove"), (lpn,))?))
    }

    fn evict(&mut self, most: usize, victim: &mut Victim) {
        self.ask(|object| {
            let gone = object.call_method1(intern!(object.py(), "evict"), (most,))?;
            let pages = gone.try_iter().map_err(|_| {
                Wrong::Returned(format!("evict returned {}, where a list of pages is expected", shown(&gone)))
            })?;
            for (given, page) in pages.enumerate() {
                self.require_end("evict", given)?;
                leaving(&page?, victim)?;
            }
            Ok(())
        });
    }

    fn len(&self) -> usize {
        self.ask(|object| Ok(object.len()?))
    }

    fn pages(&self) -> Vec<u32> {
        self.ask(|object| {
            let mut pages = Vec::new();
            for one in object.try_iter()? {
                self.require_end("iterating over it", pages.len())?;
                pages.push(page("iterating over it", &one?)?);
            }
            Ok(pages)
        })
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        let copy = self.ask(|object| {
            let copy = object.py().import(intern!(object.py(), "copy"))?;
            Ok(Some(copy.call_method1(intern!(object.py(), "deepcopy"), (object,))?.unbind()))
        });
        // Without a copy, the original stands for it, and is not called: the copy has the fault.
        let object = copy.unwrap_or_else(|| attach(|py| self.object.clone_ref(py)));
        Box::new(Object {
            name: self.name.clone(),
            object,
            raised: self.raised.clone(),
            fault: self.fault.clone(),
            ..*self
        })
    }

    fn keeps_clean(&self) -> bool {
        self.keeps_clean
    }

    fn fill(&mut self, lpn: u32) {
        self.ask(|object| Ok(object.call_method1(intern!(object.py(), "fill"), (lpn,)).map(drop)?));
    }

    fn is_clean(&self, lpn: u32) -> bool {
        self.ask(|object| {
            let answer = object.call_method1(intern!(object.py(), "is_clean"), (lpn,))?;
            answer.extract().map_err(|_| {
                Wrong::Returned(format!("is_clean returned {}, where True or False is expected", shown(&answer)))
            })
        })
    }

    fn drop_clean(&mut self) -> Option<u32> {
        self.ask(|object| {
            let answer = object.call_method0(intern!(object.py(), "drop_clean"))?;
            if answer.is_none() { Ok(None) } else { page("drop_clean", &answer).map(Some) }
        })
    }

    fn cooperates(&self) -> bool {
        self.cooperates
    }

    fn cached(&mut self, lpn: u32) {
        self.ask(|object| Ok(object.call_method1(intern!(object.py(), "cached"), (lpn,)).map(drop)?));
    }

    fn uncached(&mut self, lpn: u32) {
        self.ask(|object| Ok(object.call_method1(intern!(object.py(), "uncached"), (lpn,)).map(drop)?));
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }
}

/// Makes the one run of a plan as `replay`, with a write policy that `factory` makes.
///
/// # Errors
/// Plans that can't be run, signals, exceptions of the policy, and its violations of the contract.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are the arguments of a function in Python")]
pub fn replay_with(
    py: Python<'_>,
    plan: String,
    data: Option<&Data>,
    keep: bool,
    file: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
    factory: Py<PyAny>,
    name: &str,
) -> PyResult<Run> {
    let given = Given { plan, input: data.map(|data| data.input("data frame")), keep, file };
    let raised = Raised::default();
    let policy = outside(factory, name, raised.clone());
    let shared = Shared::default();
    let cancelled = Arc::clone(&shared.cancelled);
    let follow = {
        let (raised, cancelled) = (raised.clone(), Arc::clone(&cancelled));
        move |share: f64| {
            attach(|py| {
                let report = |report: &Py<PyAny>| report.bind(py).call1((share,)).map(drop);
                if let Err(error) = py.check_signals().and_then(|()| progress.as_ref().map_or(Ok(()), report)) {
                    raised.put(error);
                    cancelled.store(true, Ordering::Relaxed);
                }
            });
        }
    };
    let building = raised.clone();
    let made = here(py, move || {
        make(given, cancelled, Box::new(follow), |listeners| {
            listeners.policy = Some(policy);
            listeners.make = Some(Box::new(move |profile, options| build(profile, options, &building)));
        })
    });
    // An exception says more than the failure that it led to.
    match raised.take() {
        Some(error) => Err(with_part(py, error, made.ok())),
        None => made?.map_err(|failure| errors::of(py, &failure)),
    }
}

/// Builds and fills a drive on a thread of its own, so that signals end the wait for it.
fn build(profile: &Profile, options: tidewater_core::Options, raised: &Raised) -> Result<Device, SetupError> {
    let profile = profile.clone();
    let built = attach(|py| wait(py, &Shared::default(), None, move || Device::new(&profile, options)));
    built.unwrap_or_else(|error| {
        raised.put(error);
        Err(SetupError("interrupted".into()))
    })
}

/// Holds a policy to the contract.
///
/// # Errors
/// A `PolicyError` with the rule that was broken; signals.
#[pyfunction]
pub fn check_policy(py: Python<'_>, factory: Py<PyAny>, name: &str) -> PyResult<()> {
    let raised = Raised::default();
    let policy = outside(factory, name, raised.clone());
    let checked = here(py, move || conformance::check(&policy, &Profile::generic().buffer))?;
    let raised = raised.take();
    match (checked, raised) {
        (Ok(()), None) => Ok(()),
        (_, Some(error)) if !error.is_instance_of::<PyException>(py) => Err(error),
        (Err(broken), cause) => {
            let error = errors::of(py, &failure(name, &broken));
            error.set_cause(py, cause);
            Err(error)
        }
        (Ok(()), Some(error)) => Err(error),
    }
}

fn failure(name: &str, broken: &Broken) -> Failure {
    Failure::run(format_args!("{name}: {broken}")).of(Subject::Policy { rule: Some(broken.rule) })
}
