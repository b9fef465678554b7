//! Rules for provider ids: which texts are ids of this provider, and which ids name the same
//! instance.

use machinist_instance::RecordedId;

use super::bench::{Bench, check, fail};
use super::case::cases;
use super::ending::{Ending, Played};

cases![
    the_id_of_a_created_instance_parses_as_ours,
    different_instances_are_never_the_same,
    an_empty_id_is_unset,
    other_spellings_name_the_same_instance,
    foreign_and_malformed_ids_are_recognized,
];

async fn the_id_of_a_created_instance_parses_as_ours(bench: &Bench<'_>) -> Played {
    let made = bench.ensure(&bench.spec("a")).await?;
    let provider = bench.subject.provider();
    match provider.parse_id(made.id.as_str()) {
        RecordedId::Ours(id) => check(provider.same_instance(&id, &made.id), || {
            format!("same_instance: expected {} and its parsed form {id} to be the same", made.id)
        }),
        other => fail(format!("parse_id: expected {} to be ours, got {other:?}", made.id)),
    }
}

async fn different_instances_are_never_the_same(bench: &Bench<'_>) -> Played {
    let (a, b) = (bench.ensure(&bench.spec("a")).await?, bench.ensure(&bench.spec("b")).await?);
    let provider = bench.subject.provider();
    let mut ids = vec![b.id.as_str().to_owned()];
    ids.extend(bench.subject.other_spellings(&b.id));
    for id in ids {
        let RecordedId::Ours(id) = provider.parse_id(&id) else {
            return fail(format!("parse_id: expected {id} to be ours"));
        };
        let same = provider.same_instance(&a.id, &id) || provider.same_instance(&id, &a.id);
        check(!same, || format!("same_instance: expected {} and {id} to be different instances", a.id))?;
    }
    Ok(())
}

async fn an_empty_id_is_unset(bench: &Bench<'_>) -> Played {
    let read = bench.subject.provider().parse_id("");
    check(read == RecordedId::Unset, || format!("parse_id: expected an empty text to be unset, got {read:?}"))
}

async fn other_spellings_name_the_same_instance(bench: &Bench<'_>) -> Played {
    let made = bench.ensure(&bench.spec("a")).await?;
    let spellings = bench.subject.other_spellings(&made.id);
    if spellings.is_empty() {
        return Err(Ending::Skip("this cloud has one spelling of an id".to_owned()));
    }
    let provider = bench.subject.provider();
    for spelling in spellings {
        let RecordedId::Ours(id) = provider.parse_id(&spelling) else {
            return fail(format!("parse_id: expected {spelling} to be ours"));
        };
        let same = provider.same_instance(&made.id, &id) && provider.same_instance(&id, &made.id);
        check(same, || format!("same_instance: expected {spelling} to be the same instance as {}", made.id))?;
    }
    Ok(())
}

async fn foreign_and_malformed_ids_are_recognized(bench: &Bench<'_>) -> Played {
    let (foreign, malformed) = (bench.subject.foreign_ids(), bench.subject.malformed_ids());
    if foreign.is_empty() && malformed.is_empty() {
        return Err(Ending::Skip("this provider accepts every text as its own id".to_owned()));
    }
    let provider = bench.subject.provider();
    for text in foreign {
        let read = provider.parse_id(&text);
        check(matches!(read, RecordedId::NotOurs { .. }), || {
            format!("parse_id: expected {text} not to be ours, got {read:?}")
        })?;
    }
    for text in malformed {
        let read = provider.parse_id(&text);
        check(matches!(read, RecordedId::Malformed { .. }), || {
            format!("parse_id: expected {text} to be malformed, got {read:?}")
        })?;
    }
    Ok(())
}
