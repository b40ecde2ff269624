//! The user's callbacks, and how an armed one misbehaves.
//!
//! In Rust `exception` is a returned [`CallbackError`], `base_exception` a panic: a library that maps errors but does not
//! catch panics is as unprotected as a Python library that catches `Exception`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use brokerfall_report::exception::Exception;
use brokerfall_report::protocol::{ArmCallback, Callback, CallbackCall, How, On, ReaderEvent, Times};

use super::{Sdk, exceptions};

/// The type of the error that an armed callback returns.
pub const CALLBACK_ERROR: &str = "brokerfall::reader::sdk::callbacks::CallbackError";

/// What a user callback returns when it fails.
#[derive(Debug, thiserror::Error)]
#[error("the callback {callback:?} was told to fail at offset {offset}")]
pub struct CallbackError {
    /// Which callback.
    pub callback: Callback,
    /// Offset of its record.
    pub offset: u64,
}

/// The armed callbacks of a process. They outlive a reader object, as a user's function does.
#[derive(Default)]
pub(super) struct Callbacks {
    armed: Mutex<Vec<Armed>>,
}

struct Armed {
    fault: ArmCallback,
    calls: u64,
    struck: u64,
}

impl Callbacks {
    /// Arms a fault in place of what was armed for the same callback; `times = 0` disarms.
    ///
    /// # Errors
    /// The exception to answer with, when the type asked for is none that Rust can return or throw.
    pub(super) fn arm(&self, fault: ArmCallback) -> Result<(), Box<Exception>> {
        let can = match fault.raise.how {
            How::Exception => CALLBACK_ERROR,
            How::BaseException => "panic",
            How::Hang | How::Delay => "",
        };
        match &fault.raise.type_name {
            Some(asked) if asked != can => {
                return Err(exceptions::plain(
                    "brokerfall::reader::sdk::NoSuchType",
                    &format!("this adapter cannot raise `{asked}` (leave `type` out: it raises {can})"),
                ));
            }
            _ => {}
        }
        let mut armed = self.lock();
        armed.retain(|arm| arm.fault.callback != fault.callback);
        if fault.times != Times::Count(0) {
            armed.push(Armed {
                fault,
                calls: 0,
                struck: 0,
            });
        }
        Ok(())
    }

    fn strike(&self, callback: Callback, key: Option<&str>, offset: u64) -> Option<ArmCallback> {
        let mut armed = self.lock();
        if armed.is_empty() {
            return None;
        }
        let mut struck = None;
        for arm in armed.iter_mut().filter(|arm| arm.fault.callback == callback) {
            arm.calls += 1;
            let here = match &arm.fault.on {
                On::Key(wanted) => key == Some(wanted.as_str()),
                On::Offset(wanted) => *wanted == offset,
                On::Nth(n) => arm.calls >= *n,
            };
            if here && struck.is_none() {
                arm.struck += 1;
                struck = Some(arm.fault.clone());
            }
        }
        armed.retain(|arm| !matches!(arm.fault.times, Times::Count(times) if arm.struck >= times));
        struck
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Armed>> {
        // The lock is never held while a callback runs, so a panic cannot have left it half changed.
        crate::lock(&self.armed)
    }
}

impl Sdk {
    /// Calls the user's callback and isolates it: an error that it returns and a panic that it throws come back as the
    /// exception. It blocks as long as the callback does.
    ///
    /// # Errors
    /// What the callback raised.
    pub fn call(&self, callback: Callback, key: Option<&str>, offset: u64) -> Result<(), Box<Exception>> {
        let Some(fault) = self.shared.callbacks.strike(callback, key, offset) else {
            return Ok(());
        };
        let call = CallbackCall {
            callback,
            key: key.map(str::to_owned),
            offset: Some(offset),
        };
        self.event(ReaderEvent::CallbackEntered(call.clone()));
        match catch_unwind(AssertUnwindSafe(|| self.misbehave(&fault, call))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(exceptions::plain(CALLBACK_ERROR, &error.to_string())),
            Err(payload) => Err(exceptions::panic(payload.as_ref())),
        }
    }

    fn misbehave(&self, fault: &ArmCallback, call: CallbackCall) -> Result<(), CallbackError> {
        let error = CallbackError {
            callback: call.callback,
            offset: call.offset.unwrap_or_default(),
        };
        match fault.raise.how {
            How::Exception => {
                self.event(ReaderEvent::CallbackRaised(call));
                Err(error)
            }
            How::BaseException => {
                self.event(ReaderEvent::CallbackRaised(call));
                std::panic::panic_any(error.to_string())
            }
            How::Hang => loop {
                std::thread::park();
            },
            How::Delay => {
                wait(Duration::from_millis(fault.raise.ms.unwrap_or(1_000)));
                Ok(())
            }
        }
    }
}

/// Lets time pass: here time itself is what was asked for.
fn wait(length: Duration) {
    let never = Mutex::new(());
    let guard = crate::lock(&never);
    // OK to drop the result: nobody notifies, so it returns when the time has passed.
    let _ = Condvar::new().wait_timeout_while(guard, length, |()| true);
}

#[cfg(test)]
mod tests {
    use brokerfall_report::protocol::Raise;

    use super::*;

    fn arm(on: On, times: Times) -> ArmCallback {
        ArmCallback {
            callback: Callback::OnSet,
            on,
            raise: Raise {
                how: How::Exception,
                type_name: None,
                ms: None,
            },
            times,
        }
    }

    fn struck(callbacks: &Callbacks, calls: &[(&str, u64)]) -> Vec<u64> {
        calls
            .iter()
            .filter(|(key, offset)| callbacks.strike(Callback::OnSet, Some(key), *offset).is_some())
            .map(|(_, offset)| *offset)
            .collect()
    }

    #[test]
    fn nth_strikes_that_call_once() {
        let callbacks = Callbacks::default();
        callbacks.arm(arm(On::Nth(2), Times::Count(1))).unwrap();
        assert_eq!(struck(&callbacks, &[("a", 1), ("a", 2), ("a", 3)]), [2]);
    }

    #[test]
    fn nth_with_two_times_strikes_the_next_call_too() {
        let callbacks = Callbacks::default();
        callbacks.arm(arm(On::Nth(2), Times::Count(2))).unwrap();
        assert_eq!(struck(&callbacks, &[("a", 1), ("a", 2), ("a", 3), ("a", 4)]), [2, 3]);
    }

    #[test]
    fn key_strikes_only_calls_with_it() {
        let callbacks = Callbacks::default();
        callbacks.arm(arm(On::Key("b".into()), Times::Always)).unwrap();
        assert_eq!(struck(&callbacks, &[("a", 1), ("b", 2), ("b", 3)]), [2, 3]);
    }

    #[test]
    fn other_callbacks_are_left_alone() {
        let callbacks = Callbacks::default();
        callbacks.arm(arm(On::Nth(1), Times::Always)).unwrap();
        assert!(callbacks.strike(Callback::OnDelete, Some("a"), 1).is_none());
    }

    #[test]
    fn arming_again_replaces_and_zero_times_disarms() {
        let callbacks = Callbacks::default();
        callbacks.arm(arm(On::Nth(1), Times::Always)).unwrap();
        callbacks.arm(arm(On::Nth(3), Times::Always)).unwrap();
        assert_eq!(struck(&callbacks, &[("a", 1), ("a", 2), ("a", 3)]), [3]);
        callbacks.arm(arm(On::Nth(1), Times::Count(0))).unwrap();
        assert!(struck(&callbacks, &[("a", 4)]).is_empty());
    }

    #[test]
    fn type_that_rust_cannot_raise_is_refused() {
        let mut fault = arm(On::Nth(1), Times::Count(1));
        fault.raise.type_name = Some("ValueError".into());
        assert!(Callbacks::default().arm(fault).is_err());
    }
}
