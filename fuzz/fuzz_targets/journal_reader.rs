//! Scan and recovery of crafted journals.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sim::fuzz::Target::JournalReader.run(input));
