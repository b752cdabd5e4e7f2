//! NULL where it does not belong: `tests/c/bad_nulls.c`.

use slicepool_tests::{Suite, header, run};
use std::collections::BTreeSet;
use std::time::Duration;

slicepool_tests::c_tests! { "tests/c/bad_nulls.c":
    null_is_an_error_and_not_a_crash,
    null_is_fine_where_the_header_says_so,
}

/// Functions that take nothing that could be wrong, or to which NULL is fine.
fn is_harmless(function: &str) -> bool {
    function.starts_with("slicepool_sizeof_")
        || ["slicepool_version", "slicepool_result_string", "slicepool_own_pool", "slicepool_budget_release"]
            .contains(&function)
}

#[test]
fn every_function_of_the_header_is_called_with_null() {
    let program = Suite::checked("tests/c/bad_nulls.c").program(&[]);
    let output = run(&program, &["null_is_an_error_and_not_a_crash"], Duration::from_secs(60));
    let called: BTreeSet<_> = output.lines().filter_map(|call| Some(call.split_once('(')?.0.to_owned())).collect();
    let expected: BTreeSet<_> = header().functions.into_iter().filter(|function| !is_harmless(function)).collect();
    assert_eq!(called, expected);
}
