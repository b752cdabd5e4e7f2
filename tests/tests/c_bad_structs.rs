//! Structs of wrong sizes, of older and newer callers: `tests/c/bad_structs.c`.

slicepool_tests::c_tests! { "tests/c/bad_structs.c":
    a_struct_size_that_cannot_be_is_refused,
    a_shorter_struct_is_zero_beyond_its_end,
    a_longer_struct_is_accepted_if_its_tail_is_zero,
    elements_of_an_array_must_have_the_size_of_the_first,
}
