//! One table of ratios, from one run: `make bench`.

mod aligned;
mod churn;
mod packing;
mod reuse;
mod turns;

fn main() {
    churn::speed();
    churn::layouts();
    churn::latency();
    churn::pages();
    aligned::speed();
    reuse::speed();
    reuse::free_pages();
    reuse::steady();
    packing::smallest_spaces();
}
