//! One table of ratios, from one run: `make bench`.

mod aligned;
mod churn;
mod device;
mod goals;
mod packing;
mod reuse;
mod threads;
mod turns;

fn main() {
    let mut goals = goals::Goals::default();
    churn::speed(&mut goals);
    churn::layouts();
    churn::latency(&mut goals);
    churn::pages(&mut goals);
    aligned::speed(&mut goals);
    reuse::speed(&mut goals);
    reuse::free_pages(&mut goals);
    reuse::steady();
    packing::smallest_spaces(&mut goals);
    threads::contention(&mut goals);
    device::latency(&mut goals);
    goals.print();
}
