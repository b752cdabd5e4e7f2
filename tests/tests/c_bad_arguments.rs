//! Arguments that callers get wrong: `tests/c/bad_arguments.c`.

use slicepool_tests::{Suite, header, run};
use std::collections::BTreeSet;
use std::time::Duration;

slicepool_tests::c_tests! { "tests/c/bad_arguments.c":
    null_is_an_error_and_not_a_crash,
    null_is_fine_where_the_header_says_so,
    every_unknown_flag_is_refused,
    kinds_and_rules_that_do_not_exist_are_refused_by_name,
    reserved_fields_must_be_zero,
    callbacks_that_belong_together_are_given_together_or_refused_by_name,
    points_that_cannot_be_are_refused_by_name,
    a_persistent_granule_and_a_margin_that_cannot_be_are_refused_by_name,
    pools_that_cannot_be_installed_are_refused_and_the_old_ones_stay,
    forged_handles_are_refused,
    a_list_of_handles_is_freed_whole_or_not_at_all,
}

/// Functions that take nothing that could be wrong, or to which NULL is fine.
fn is_harmless(function: &str) -> bool {
    function.starts_with("slicepool_sizeof_")
        || ["slicepool_version", "slicepool_result_string", "slicepool_budget_release"].contains(&function)
}

#[test]
fn every_function_of_the_header_is_called_with_null() {
    let program = Suite::checked("tests/c/bad_arguments.c").program(&[]);
    let output = run(&program, &["null_is_an_error_and_not_a_crash"], Duration::from_secs(60));
    let called: BTreeSet<_> = output.lines().filter_map(|call| Some(call.split_once('(')?.0.to_owned())).collect();
    let expected: BTreeSet<_> = header().functions.into_iter().filter(|function| !is_harmless(function)).collect();
    assert_eq!(called, expected);
}
