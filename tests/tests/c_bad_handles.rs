//! Handles and points that callers get wrong: `tests/c/bad_handles.c`.

slicepool_tests::c_tests! { "tests/c/bad_handles.c":
    points_that_cannot_be_are_refused_by_name,
    forged_handles_are_refused,
    a_list_of_handles_is_freed_whole_or_not_at_all,
}
