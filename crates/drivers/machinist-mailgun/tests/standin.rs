//! The client against the stand-in, over TCP.

use std::time::Duration;

use machinist_driver::Fence;
use machinist_instance::ErrorKind;
use machinist_mailer::{Envelope, Mailer};
use machinist_mailgun::Mailgun;
use machinist_standin_mailgun::{Fault, LoopbackServer, Standin};

fn mail(id: &str) -> Envelope {
    Envelope {
        message_id: id.to_owned(),
        requester: "dev@example.com".to_owned(),
        recipients: vec!["ops@example.com".to_owned()],
        subject: "[Urgent] New Cluster a requested".to_owned(),
        text: "Hello! One cluster please.\n".to_owned(),
        uid: id.to_owned(),
        purpose: "create",
    }
}

#[tokio::test]
async fn mails_are_sent_looked_up_and_counted() {
    let standin = Standin::new("key", Duration::ZERO);
    let address = "127.0.0.1:0".parse().expect("an address");
    let server = LoopbackServer::bind(standin.clone(), address).await.expect("a free port");
    let client = |key: &str| Mailgun::new(&server.url(), "mail.example.com", key).expect("a client");
    let (mailgun, stranger) = (client("key"), client("other"));
    let test = async {
        assert_eq!(mailgun.look_up("a@mail.example.com").await, Ok(false));
        let ended = Fence::new(|| Err("the lease has ended"));
        let late = ended.around(mailgun.send(&mail("a@mail.example.com"))).await.expect_err("too late");
        assert_eq!((late.kind, standin.accepted()), (ErrorKind::Unavailable, 0));
        assert_eq!(mailgun.send(&mail("a@mail.example.com")).await, Ok(()));
        assert_eq!(mailgun.look_up("a@mail.example.com").await, Ok(true));
        for (fault, kind) in [
            (Fault::Reject, ErrorKind::InvalidSpec),
            (Fault::Throttle, ErrorKind::Throttled { retry_after: None }),
            (Fault::Fail, ErrorKind::Ambiguous),
        ] {
            standin.set_fault(fault);
            let error = mailgun.send(&mail("b@mail.example.com")).await.expect_err("a fault");
            assert_eq!((error.kind, standin.accepted()), (kind, 1), "{fault:?}");
        }
        standin.set_fault(Fault::FailAfter);
        let error = mailgun.send(&mail("b@mail.example.com")).await.expect_err("a fault");
        assert_eq!((error.kind, standin.accepted(), standin.duplicates()), (ErrorKind::Ambiguous, 2, 0));
        standin.set_fault(Fault::NoLookUp);
        assert_eq!(mailgun.look_up("b@x").await.map_err(|error| error.kind), Err(ErrorKind::Denied));
        assert_eq!(mailgun.send(&mail("b@mail.example.com")).await, Ok(()));
        assert_eq!(standin.duplicates(), 1, "the stand-in counts a mail that was sent twice");
        assert_eq!(stranger.send(&mail("c")).await.map_err(|error| error.kind), Err(ErrorKind::Denied));
    };
    server.serve(test).await;
}
