//! Clouds that say nothing, or the wrong thing: no Node is deleted on a doubt.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use machinist_standin_hcloud::{Access, Fault, FaultRule};

use crate::world::{OTHER_TOKEN, PROJECT, TOKEN, UNINITIALIZED, World, has_taint};

/// Requests per hour and the size of the burst of a project, as the real cloud has them.
const USUAL_RATE: u32 = 3600;

/// The process waits until a sixtieth of the bucket is full, which takes a minute.
const REFILLED_WITHIN: Duration = Duration::from_secs(100);

/// The process starts although the cloud resets all connections.
pub(crate) async fn a_silent_cloud_at_the_start_is_waited_for(world: &mut World) -> Result<()> {
    world.server("early")?;
    world.join("early", None).await?;
    world
        .until("`why` says that the cloud did not answer", async |w| {
            // The process may not listen yet.
            let Ok((status, why)) = w.program.get("/why/node/early", Some(&w.reader)).await else {
                return Ok(false);
            };
            Ok(status == 200 && why.contains("CallFailed"))
        })
        .await?;
    ensure!(has_taint(&world.node("early").await?, UNINITIALIZED));
    world.standin.clear_faults();
    world
        .until("the Node is initialised", async |w| Ok(!has_taint(&w.node("early").await?, UNINITIALIZED)))
        .await?;
    remove(world, "early").await
}

/// Answers that prove nothing: errors, pages of a proxy, resets, and a list without the server.
pub(crate) async fn errors_of_the_cloud_delete_no_node(world: &mut World) -> Result<()> {
    let id = crate::nodes::id_of(&world.node("worker-1").await?)?;
    world.set_ready("worker-1", false).await?;
    world.standin.add_fault(FaultRule::always("GET", "/servers", Fault::Omit { id }));
    world.after_lists(3).await?;
    world.ensure_node("worker-1").await.context("a list that omits the server")?;
    world.standin.clear_faults();
    for fault in [Fault::Html404, Fault::Reset] {
        world.standin.add_fault(FaultRule::everywhere(fault.clone()));
        let before = world.requests(|_| true);
        world.until("the process repeats its calls", async |w| Ok(w.requests(|_| true) > before + 2)).await?;
        world.ensure_node("worker-1").await.with_context(|| format!("{fault:?}"))?;
        world.standin.clear_faults();
    }
    world.set_ready("worker-1", true).await?;
    world.after_lists(1).await
}

/// An account without calls gets few requests, and initialisation continues afterwards.
pub(crate) async fn a_rate_limit_is_kept(world: &mut World) -> Result<()> {
    world.standin.set_rate(PROJECT, USUAL_RATE, 0);
    let refused =
        |w: &World| w.standin.requests().iter().filter(|request| request.status == Some(429)).count();
    let before = refused(world);
    world.server("limited")?;
    world.join("limited", None).await?;
    world
        .until_within(REFILLED_WITHIN, "the Node is initialised", async |w| {
            Ok(!has_taint(&w.node("limited").await?, UNINITIALIZED))
        })
        .await?;
    let refused = refused(world) - before;
    ensure!(refused <= 3, "{refused} requests were refused: the process did not wait");
    world.standin.set_rate(PROJECT, USUAL_RATE, USUAL_RATE);
    // The process saves calls until an answer shows the full bucket. A new Node is never saved.
    world.server("unlimited")?;
    world.join("unlimited", None).await?;
    world
        .until("the next Node is initialised", async |w| {
            Ok(!has_taint(&w.node("unlimited").await?, UNINITIALIZED))
        })
        .await?;
    remove(world, "unlimited").await?;
    remove(world, "limited").await
}

/// Nothing is deleted, `/readyz` names the token, and the new token works within seconds.
pub(crate) async fn a_revoked_token_deletes_no_node(world: &mut World) -> Result<()> {
    world.standin.revoke_token(TOKEN);
    world.set_ready("worker-1", false).await?;
    let refused =
        |w: &World| w.standin.requests().iter().filter(|request| request.status == Some(401)).count();
    world.until("the cloud refuses the token", async |w| Ok(refused(w) > 0)).await?;
    world.server("late")?;
    world.join("late", None).await?;
    let before = refused(world);
    world.until("the process tries again", async |w| Ok(refused(w) > before)).await?;
    world.ensure_node("worker-1").await?;
    ensure!(has_taint(&world.node("late").await?, UNINITIALIZED));
    let (status, body) = world.program.get("/readyz", None).await?;
    ensure!(status == 503, "/readyz answers {status}: {body}");
    world.standin.configure(|settings| settings.tokens.set("renewed", PROJECT, Access::ReadWrite));
    let since = Instant::now();
    world.set_token("renewed")?;
    world
        .until("the late Node is initialised", async |w| {
            Ok(!has_taint(&w.node("late").await?, UNINITIALIZED))
        })
        .await?;
    ensure!(since.elapsed() < Duration::from_secs(15), "recovered only after {:?}", since.elapsed());
    world
        .until("/readyz is fine again", async |w| Ok(w.program.get("/readyz", None).await?.0 == 200))
        .await?;
    world.set_ready("worker-1", true).await?;
    remove(world, "late").await
}

/// The account is another one, so its absences prove nothing. The same is true for a process that
/// has never seen the right account.
pub(crate) async fn a_token_of_another_project_deletes_no_node(world: &mut World) -> Result<()> {
    world.set_token(OTHER_TOKEN)?;
    world.set_ready("worker-1", false).await?;
    let of_other = |w: &World| {
        w.standin.requests().iter().filter(|request| request.project.as_deref() == Some("b")).count()
    };
    world.until("the other project is asked", async |w| Ok(of_other(w) >= 4)).await?;
    world.ensure_node("worker-1").await?;
    world.program.stop()?;
    world.program = world.start_another("with-another-project")?;
    let before = of_other(world);
    world.until("the new process asks, too", async |w| Ok(of_other(w) >= before + 4)).await?;
    world.ensure_node("worker-1").await?;
    world
        .until("an Event reports it", async |w| Ok(!w.events("CloudAccountUnproven").await?.is_empty()))
        .await?;
    world.set_token("renewed")?;
    world.set_ready("worker-1", true).await?;
    world.after_lists(2).await
}

/// Removes a Node and its server as a user does, so that the following scenarios do not see them.
async fn remove(world: &mut World, name: &str) -> Result<()> {
    let id = crate::nodes::id_of(&world.node(name).await?)?;
    world.nodes().delete(name, &kube::api::DeleteParams::default()).await?;
    world.standin.delete_server(id).map_err(anyhow::Error::msg)
}
