//! Okeanos, figures 5c and 5d: many processes write small records synchronously over a parallel
//! file system.

use super::programs::{self, Goal, JOURNAL_KIB};
use super::{Experiment, OKEANOS, PaperSize, Scale, okeanos};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::gluster::{self, GlusterArgs};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "okeanos-gluster",
    title: "Records of many processes over a parallel file system",
    paper: OKEANOS,
    figure: "Figures 5c and 5d",
    about: "GlusterFS with its brick on the file system under test, and clients in network \
            namespaces of their own on a virtual bridge. Every process appends records of 1,024 \
            bytes to a file of its own, opened with `O_SYNC`. Records a second of all processes \
            together, and what the disk gets for each; making the volume is among the counts. \
            The paper had PVFS2, a machine for each client, and 65,000 records in place of a \
            time; here all share this machine's CPUs. The journal is in the volume; its bytes \
            are counted apart. For a record they depend on how many records share a commit, \
            which differs from round to round. Wasteless and selective log a record of this size \
            in the same way, so here they are equally fast and log equally many bytes; in the \
            paper selective is slower and logs less. *as in Okeanos* is OneJournal with whole \
            blocks of metadata, no compression, and blocks of the journal that are filled up. On \
            a model of a 7200 rpm disk (`hdd`).",
    paper_claim: "Wasteless journaling almost doubles the throughput of ordered mode; data and \
            selective journaling lie between. Wasteless writes 42 % less to the journal than data \
            journaling, and selective less than wasteless.",
    goal: "Twice the records a second of ext4 ordered. As in Okeanos: wasteless the same, \
            selective no fewer than ext4 ordered; wasteless at most 0.58 of data journaling's \
            bytes in the journal, selective no more than wasteless.",
    sizes: &[&CLIENTS, &PROCESSES, &SECONDS],
    run,
};

const RATE: Metric = Metric::higher("records a second", "1/s");
const SIZE_MIB: u32 = 512;
const CLIENTS: PaperSize = PaperSize::of("clients, at most", 13, 8, 2);
const PROCESSES: PaperSize = PaperSize::of("processes of a client, at most", 40, 10, 10);
const SECONDS: PaperSize = PaperSize::own("seconds of a case and round", 1, 1);

fn recipes() -> Vec<Box<dyn System>> {
    let ours = |mode| Box::new(OneJournal::new().data(mode));
    vec![
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        ours("wasteless"),
        ours("selective"),
        ours("auto"),
        Box::new(okeanos::wasteless_as_in_paper()),
        Box::new(okeanos::selective_as_in_paper()),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::are_installed(section, &[("glusterd", "glusterfs-server"), ("fio", "fio")]) {
        return Ok(());
    }
    let clients_max = scale.size(&CLIENTS);
    let clients = scale.pick(vec![clients_max], vec![1, clients_max]);
    let devices = &["hdd"];
    plot(section);
    for device in scale.devices(devices) {
        on_device(lab, scale, section, &device, &clients, samples)?;
        for clients in &clients {
            judge(section, samples, &key(scale, &device, *clients))?;
        }
    }
    Ok(())
}

fn key(scale: &Scale, device: &Device, clients: u32) -> Key {
    Key::at(device.to_string(), f64::from(clients * scale.size::<u32>(&PROCESSES)))
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    all_clients: &[u32],
    samples: &mut Samples,
) -> Result<()> {
    let running = systems::start(lab, &recipes(), &Site::new(device, SIZE_MIB), section)?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        for &clients in all_clients {
            scale.say_round(round, format_args!("{device}, {clients} clients"));
            let key = key(scale, device, clients);
            programs::round(&mut rng, &running, (samples, &key, RATE), |running| {
                let found = gluster::run(&GlusterArgs {
                    clients,
                    processes: scale.size(&PROCESSES),
                    seconds: scale.size(&SECONDS),
                    environment: running.client.variables(),
                    ..GlusterArgs::on(&running.dir)
                })?;
                Ok((found.iops, found.writes))
            })?;
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)
}

fn plot(section: &mut Section) {
    let plot = |title| Plot::lines(title, RATE.name, "processes", Vec::new());
    section.plots.extend([
        plot("Figure 5c: records a second"),
        plot("Figure 5d: KiB written a record").of_count("written KiB"),
        plot("Figure 5d: of them to the journal").of_count(JOURNAL_KIB),
    ]);
}

fn judge(section: &mut Section, samples: &Samples, key: &Key) -> Result<()> {
    let ours = |mode| OneJournal::new().data(mode).name();
    let (wasteless, selective) = (ours("wasteless"), ours("selective"));
    let of_paper = [okeanos::wasteless_as_in_paper(), okeanos::selective_as_in_paper()];
    let [paper_wasteless, paper_selective] = of_paper.map(|system| system.name());
    for (ours, paper, wanted) in [
        (&wasteless, "", None),
        (&selective, "", None),
        (&ours("auto"), "", Some(2.0)),
        (&paper_wasteless, "almost 2", Some(2.0)),
        (&paper_selective, "above 1", Some(1.0)),
    ] {
        let (key, metric, theirs) = (key.clone(), RATE, Ext4::ordered().name());
        Goal { key, metric, ours: ours.clone(), theirs, paper, wanted }.judge(section, samples)?;
    }
    let data_journaling = Ext4::journal().name();
    let both = [
        (&wasteless, &data_journaling, ("", None)),
        (&selective, &wasteless, ("", None)),
        (&paper_wasteless, &data_journaling, ("42 % less (0.58)", Some(0.58))),
        (&paper_selective, &paper_wasteless, ("less", Some(1.0))),
    ];
    both.into_iter()
        .try_for_each(|(less, more, part)| judge_journal(section, samples, key, (less, more), part))
}

/// A part of another system's bytes in the journal: the paper's words, and the most that is wanted.
type Part = (&'static str, Option<f64>);

fn judge_journal(
    section: &mut Section,
    samples: &Samples,
    key: &Key,
    (less, more): (&str, &str),
    (paper, wanted): Part,
) -> Result<()> {
    let each_kib = |system: &str| {
        let missing = || Error::other(format!("{}, {}: no {system}", key.panel, key.case));
        samples.count_of(key, system, RATE, JOURNAL_KIB).ok_or_else(missing)
    };
    let (less_kib, more_kib) = (each_kib(less)?, each_kib(more)?);
    let claim = format!(
        "{}, {} processes: {less}'s bytes in the journal as a part of {more}'s",
        key.panel, key.case
    );
    let kib = format!("KiB a record, journal metadata included: {less_kib:.2} and {more_kib:.2}.");
    let part = less_kib / more_kib;
    section.verdicts.push(match wanted {
        Some(wanted) => Verdict::at_most(claim, paper, part, wanted)
            .saying(format!("At most {wanted} is wanted. {kib}")),
        None => Verdict::shown(claim, paper, part).saying(kib),
    });
    Ok(())
}
