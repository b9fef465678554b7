//! Converts the cloud's answers into the driver's results and errors. Pure functions.

use std::time::Duration;

use machinist_cloud_sim::{CloudRefusal, Code, NoAnswer, Reply};
use machinist_instance::{Error, ErrorKind, Instance};

/// Whether a call changes the cloud. This decides how a missing answer is classified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    Reads,
    Changes,
}

pub(crate) fn no_answer(nature: Nature, lost: NoAnswer) -> Error {
    let kind = match (nature, &lost) {
        (Nature::Reads, _) | (Nature::Changes, NoAnswer::NotSent(_)) => ErrorKind::Unavailable,
        (Nature::Changes, NoAnswer::Lost(_)) => ErrorKind::Ambiguous,
    };
    Error::new(kind, lost.to_string())
}

pub(crate) fn refused(nature: Nature, refusal: CloudRefusal) -> Error {
    let kind = match refusal.code {
        Code::InvalidParameter => ErrorKind::InvalidSpec,
        Code::Unauthorized | Code::Foreign | Code::KeySpent => ErrorKind::Denied,
        Code::QuotaExceeded | Code::OutOfStock => ErrorKind::Exhausted,
        Code::RateLimited => {
            ErrorKind::Throttled { retry_after: refusal.retry_after_seconds.map(Duration::from_secs) }
        }
        Code::ServiceUnavailable | Code::NotFound | Code::WrongState => ErrorKind::Unavailable,
        Code::InternalError => match nature {
            Nature::Reads => ErrorKind::Unavailable,
            Nature::Changes => ErrorKind::Ambiguous,
        },
    };
    Error::new(kind, refusal.to_string())
}

pub(crate) fn instance(reply: Reply) -> Result<Instance, Error> {
    match reply {
        Reply::Instance(instance) => Ok(instance),
        other => Err(unexpected("an instance", &other)),
    }
}

pub(crate) fn found(reply: Reply) -> Result<Option<Instance>, Error> {
    match reply {
        Reply::Found(found) => Ok(found),
        other => Err(unexpected("a search result", &other)),
    }
}

pub(crate) fn instances(reply: Reply) -> Result<Vec<Instance>, Error> {
    match reply {
        Reply::Instances(instances) => Ok(instances),
        other => Err(unexpected("a list of instances", &other)),
    }
}

fn unexpected(expected: &str, reply: &Reply) -> Error {
    let got = match reply {
        Reply::Instance(_) => "an instance",
        Reply::Found(_) => "a search result",
        Reply::Instances(_) => "a list",
        Reply::Done => "nothing",
    };
    Error::new(ErrorKind::Bug, format!("the cloud answered with {got}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use machinist_instance::{InstanceKey, InstanceRef, Sighting};

    use super::*;

    #[test]
    fn a_lost_answer_is_ambiguous_only_for_calls_that_change() {
        let lost = || NoAnswer::Lost("reset".to_owned());
        assert_eq!(no_answer(Nature::Changes, lost()).kind, ErrorKind::Ambiguous);
        assert_eq!(no_answer(Nature::Reads, lost()).kind, ErrorKind::Unavailable);
        let not_sent = NoAnswer::NotSent("refused".to_owned());
        assert_eq!(no_answer(Nature::Changes, not_sent).kind, ErrorKind::Unavailable);
        let internal =
            CloudRefusal { code: Code::InternalError, message: String::new(), retry_after_seconds: None };
        assert_eq!(refused(Nature::Changes, internal).kind, ErrorKind::Ambiguous);
    }

    #[test]
    fn throttling_keeps_the_retry_time_of_the_cloud() {
        let refusal =
            CloudRefusal { code: Code::RateLimited, message: String::new(), retry_after_seconds: Some(7) };
        let expected = ErrorKind::Throttled { retry_after: Some(Duration::from_secs(7)) };
        assert_eq!(refused(Nature::Reads, refusal).kind, expected);
    }

    #[test]
    fn a_search_without_a_result_is_absent_not_foreign() {
        let which = InstanceRef { key: Some(InstanceKey::new("u-1")), ..InstanceRef::default() };
        assert_eq!(Sighting::of(&which, None), Sighting::Absent);
    }
}
