//! Opening, reading and changing crafted volumes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sim::fuzz::Target::VolumeOpen.run(input));
