//! One table of ratios, from one run: `make bench`.

use slicepool_bench::results::Folders;
use std::{fs, io};

mod aligned;
mod churn;
mod device;
mod goals;
mod packing;
mod reuse;
mod threads;
mod turns;

fn main() -> io::Result<()> {
    let folders = Folders::from_arguments();
    let mut goals = goals::Goals::new();
    let plot = churn::speed(&mut goals);
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
    println!("\nwritten: {}", goals.results().save(&folders.results)?.display());
    if let Some(folder) = folders.plots {
        fs::create_dir_all(&folder)?;
        let path = folder.join("cost.svg");
        fs::write(&path, plot)?;
        println!("written: {}", path.display());
    }
    Ok(())
}
