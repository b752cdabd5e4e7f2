//! What calls say about their failures: `tests/c/failures.c`.

use slicepool_tests::{Suite, header, run};
use std::collections::BTreeSet;
use std::time::Duration;

slicepool_tests::c_tests! { "tests/c/failures.c":
    every_number_has_a_text_and_every_code_its_own,
    details_say_what_the_failure_was_and_nothing_else,
    what_a_device_answers_comes_back_in_the_details,
    trimming_ends_although_a_callback_makes_pages_idle_all_the_time,
    a_refused_page_is_reported_by_trim_with_what_the_device_answered,
    any_answer_but_continue_ends_a_walk,
    nothing_is_touched_after_destroy,
}

#[test]
fn every_code_of_the_header_has_a_text_of_its_own() {
    let program = Suite::checked("tests/c/failures.c").program(&[]);
    let output = run(&program, &["every_number_has_a_text_and_every_code_its_own"], Duration::from_secs(60));
    let with_text: BTreeSet<_> = output.lines().filter_map(|line| line.strip_prefix("code ")).collect();
    let header = header();
    let codes: BTreeSet<_> = header
        .constants
        .iter()
        .filter(|(name, _)| name == "SLICEPOOL_OK" || name.starts_with("SLICEPOOL_ERROR_"))
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(with_text, codes);
}
