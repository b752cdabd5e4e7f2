//! Pages that come without a request, and pages of one slice alone: `tests/c/own_pages.c`.

slicepool_tests::c_tests! { "tests/c/own_pages.c":
    memory_of_the_programs_own_becomes_a_page_and_goes_to_the_device_with_its_context,
    memory_that_is_refused_stays_the_programs,
    a_pool_is_filled_beforehand_up_to_so_many_pages,
    pools_have_their_first_pages_from_the_start_or_are_not_made,
    a_dedicated_slice_has_a_page_of_its_size_that_serves_that_size_again,
    pages_of_dedicated_slices_age_as_the_config_says,
    what_no_pool_takes_has_a_page_of_its_own_if_the_config_says_so,
    device_data_reaches_the_device_and_its_page_serves_once,
    a_place_is_found_whatever_it_holds,
}
