//! Dry runs and plans: `tests/c/planning.c`.

slicepool_tests::c_tests! { "tests/c/planning.c":
    a_dry_run_holds_pages_that_are_got_one_by_one,
    what_was_resolved_and_freed_is_cleaned_up,
    pages_without_memory_go_without_a_word_to_the_device,
    a_dry_run_places_and_counts_as_if_it_were_none,
    limits_count_what_was_resolved_and_caps_what_was_placed,
    a_plan_larger_than_the_device_fails_where_it_is_resolved_and_changes_nothing,
    resolving_is_looking_up_where_nothing_is_dry,
    the_memory_for_a_slice_that_is_freed_meanwhile_goes_back,
    of_two_threads_that_resolve_one_page_one_gives_its_memory_back,
    what_a_dry_run_has_shown_to_be_needed_is_enough,
    a_plan_is_enough_where_pages_that_grow_have_made_way_for_each_other,
    a_slice_that_nearly_fills_a_page_fits_its_plan,
    a_pool_that_held_nothing_has_a_cap_in_the_plan,
    a_plan_is_written_whole_or_not_at_all,
}
