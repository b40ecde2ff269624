//! Child processes: one spawning thread, process groups, the watchdog.
