//! Performs the plans of a balancer.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use machinist_instance::{BalancerNote, BalancerSpec, Ensured, Error, ErrorKind, Progress, SkipCause};
use tokio::time::Instant;

use crate::action::{End, Patience};
use crate::balancer::attachment;
use crate::balancer::create::{self, Targets};
use crate::balancer::existing::{BALANCERS, Existing, is_about_settings};
use crate::balancer::plan::{Plan, plan, unfinished};
use crate::balancer::reach::{Reach, Skip, Skips};
use crate::balancer::show::{self, BalancerView};
use crate::balancer::step::{self, OldTarget, Refused, Step, is_explained_by_servers};
use crate::balancer::targets::{Known, RefusedTurn, Scope, TURNED, Turn, Turned, full};
use crate::balancer::wanted::Wanted;
use crate::client::call::Call;
use crate::client::failure::{Code, Failure};
use crate::driver::Account;
use crate::model::{LoadBalancer, Network};
use crate::request;

/// Wait before a target that carries traffic is turned again to a sort of address that the cloud
/// has refused.
const TURN_AGAIN_AFTER: Duration = Duration::from_secs(3600);

/// Number of plans during one call: network changes, services and targets, and one more to see
/// that no difference is left.
const MAX_PLANS: usize = 4;

/// Number of changes during one call. More would exceed the time of a call.
const MAX_CHANGES: usize = 20;

/// Knowledge about servers that is younger decides about targets. Older knowledge is read again
/// before it excludes one.
const CURRENT_FOR: Duration = Duration::from_secs(30);

/// The command, for callers, while targets wait for the target that was changed last.
const HEALTH: &str = "add_target (waiting until the changed target is healthy)";

/// The result of one step.
enum Performed {
    Done,
    Skipped(Failure),
    Pending,
}

/// The result of a creation.
pub(in crate::balancer) enum Created {
    Shown(Box<LoadBalancer>),
    Pending,
}

/// The state of one call.
struct Converging {
    wanted: Wanted,
    scope: Scope,
    reach: Reach,
    /// The targets that the cloud rejected during this call.
    refused: Skips,
    /// The servers that the cloud also rejected with their old sort of address.
    lost: BTreeSet<i64>,
    changes: usize,
    /// The attachment that this call removed.
    detached: Option<Step>,
    /// The notes of this call, excluding those about skipped targets.
    notes: Vec<BalancerNote>,
}

impl Converging {
    /// The targets that are left out.
    fn skips(&self) -> Skips {
        let mut skips = self.reach.skips(&self.wanted);
        skips.extend(self.refused.clone());
        skips
    }

    fn takes_change(&mut self) -> bool {
        self.changes += 1;
        self.changes <= MAX_CHANGES
    }
}

/// The end of a part of a call.
enum Ended {
    /// The plan was performed. The balancer is read again.
    Performed,
    Working(&'static str),
}

impl Account {
    /// Performs the differences until none is left, or until an action takes longer than a moment.
    pub(in crate::balancer) async fn converge(
        &self,
        mut shown: LoadBalancer,
        wanted: &Wanted,
        scope: Scope,
        patience: &mut Patience,
    ) -> Result<Progress<Ensured>, Error> {
        let reach = self.reach_for(wanted, &shown).await;
        let mut call = Converging {
            notes: wanted.notes.clone(),
            wanted: wanted.clone(),
            scope,
            reach,
            refused: Skips::new(),
            lost: BTreeSet::new(),
            changes: 0,
            detached: None,
        };
        let mut earlier: Option<Plan> = None;
        for _ in 0..MAX_PLANS {
            if let Some(command) = unfinished(&shown) {
                return Ok(Progress::Working(command.to_owned()));
            }
            let mut now = self.plan(&shown, &call);
            // A target is removed only if its replacement is sure.
            if !now.targets.turns.is_empty() && !call.reach.is_current() {
                call.reach = self.learn().await?;
                now = self.plan(&shown, &call);
            }
            if now.steps.is_empty() && now.targets.turns.is_empty() {
                if now.targets.is_waiting {
                    return Ok(Progress::Working(HEALTH.to_owned()));
                }
                self.set_turned(shown.id, None);
                self.forget_detached(&shown, wanted);
                return Ok(Progress::Done(self.ensured(shown, now, call)));
            }
            if earlier.as_ref().is_some_and(|earlier| *earlier == now) {
                call.notes.push(without_effect(&now.steps));
                return Ok(Progress::Done(self.ensured(shown, now, call)));
            }
            if let Ended::Working(command) = self.perform_all(&shown, &now, &mut call, patience).await? {
                return Ok(Progress::Working(command.to_owned()));
            }
            shown = self.reread(shown.id).await?;
            earlier = Some(now);
        }
        Ok(Progress::Working("update_load_balancer".to_owned()))
    }

    /// The result of a call without further differences.
    fn ensured(&self, shown: LoadBalancer, plan: Plan, call: Converging) -> Ensured {
        let Converging { wanted, scope, mut notes, .. } = call;
        let skipped = plan.targets.skipped;
        notes.extend(skipped.iter().map(step::note));
        // A call that only follows the Nodes ends with an error, which contains no note.
        if scope == Scope::Everything {
            notes.extend(self.unreported().remove(&wanted.key).and_then(|(_, note)| note));
        }
        notes.extend(show::deprecation(&shown));
        let balancer = show::balancer(BalancerView::of_settings(&wanted.settings), shown);
        Ensured { balancer, notes, skipped }
    }

    /// Brings the targets up to date although the settings cannot be applied, and fails with that
    /// error.
    pub(in crate::balancer) async fn follow_nodes(
        &self,
        spec: &BalancerSpec,
        shown: LoadBalancer,
        error: Error,
        patience: &mut Patience,
    ) -> Result<Progress<Ensured>, Error> {
        let wanted = Wanted::following(spec, &self.options.balancer_defaults, &shown)?;
        match self.converge(shown, &wanted, Scope::Targets, patience).await? {
            Progress::Working(command) => Ok(Progress::Working(command)),
            Progress::Done(_) => Err(error),
        }
    }

    pub(in crate::balancer) async fn create(
        &self,
        wanted: &Wanted,
        patience: &mut Patience,
    ) -> Result<Created, Error> {
        let skips = self.reach(wanted, |_| false).await.skips(wanted);
        let mut created = self.client.call(create::create(wanted, Targets::Without(&skips))?).await;
        if let Err(failure) = &created
            && create::may_be_a_target(wanted, failure)
        {
            let known = self.learn().await.map(|reach| reach.skips(wanted)).unwrap_or_default();
            // If the data of the cloud do not name the target, the targets are tried one by one.
            let names_no_other = known.keys().all(|server| skips.contains_key(server));
            let targets = if names_no_other { Targets::Later } else { Targets::Without(&known) };
            created = self.client.call(create::create(wanted, targets)?).await;
        }
        let mut answer = match created {
            Ok(answer) => answer,
            // Another call created it in the meantime, or the cloud rejects another unique field.
            Err(failure) if failure.is(Code::UniquenessError) => {
                let found = self.existing_balancer(wanted, &wanted.first_name).await?;
                return found
                    .map(|(Existing::Ours(shown) | Existing::Adoptable(shown))| Created::Shown(shown))
                    .ok_or(failure.error);
            }
            Err(failure) if failure.is_absence() => {
                return Err(Error::new(ErrorKind::InvalidSpec, failure.error.message));
            }
            Err(failure) => return Err(failure.error),
        };
        let shown: LoadBalancer = answer.take("load_balancer")?;
        self.unreported().insert(wanted.key.clone(), (shown.id, None));
        match self.client.follow(answer.take("action")?, patience).await? {
            End::Pending => Ok(Created::Pending),
            End::Success => self.reread(shown.id).await.map(|shown| Created::Shown(Box::new(shown))),
        }
    }

    /// The differences, as far as they are known without a change.
    pub(in crate::balancer) async fn foreseen(&self, shown: &LoadBalancer, wanted: &Wanted) -> Plan {
        let reach = self.reach_for(wanted, shown).await;
        let turned = self.turned(shown);
        let detached = self.detached(shown, turned.as_ref());
        let refused_turns = &self.refused_turns(shown, wanted);
        let skips = &reach.skips(wanted);
        let known = Known { skips, turned: turned.as_ref(), detached: &detached, refused_turns };
        plan(shown, wanted, Scope::Everything, known)
    }

    fn plan(&self, shown: &LoadBalancer, call: &Converging) -> Plan {
        let turned = self.turned(shown);
        let mut detached = self.detached(shown, turned.as_ref());
        detached.retain(|server| !call.lost.contains(server));
        let refused_turns = &self.refused_turns(shown, &call.wanted);
        let skips = &call.skips();
        let known = Known { skips, turned: turned.as_ref(), detached: &detached, refused_turns };
        plan(shown, &call.wanted, call.scope, known)
    }

    async fn perform_all(
        &self,
        shown: &LoadBalancer,
        plan: &Plan,
        call: &mut Converging,
        patience: &mut Patience,
    ) -> Result<Ended, Error> {
        if plan.steps.iter().any(|step| matches!(step, Step::DetachFromNetwork(_))) {
            self.check_attachment(shown, &call.wanted).await?;
        }
        for step in &plan.steps {
            if let Step::AddTarget { target, use_private_ip } = step
                && *use_private_ip == call.wanted.settings.use_private_ip
                && call.skips().contains_key(&target.server)
            {
                continue;
            }
            if !call.takes_change() {
                return Ok(Ended::Working(step.command()));
            }
            match self.perform(shown.id, step, patience).await {
                Ok(Performed::Done) => {}
                Ok(Performed::Pending) => return Ok(Ended::Working(step.command())),
                Ok(Performed::Skipped(failure)) => self.refuse(shown, step, failure, plan, call).await,
                Err(error) => {
                    if is_about_settings(error.kind) {
                        self.attach_again(shown.id, step, call, patience).await;
                    }
                    return Err(error);
                }
            }
            if let Step::DetachFromNetwork(network) = step {
                call.detached = attachment::of(shown, *network);
            }
        }
        for turn in &plan.targets.turns {
            if !call.takes_change() {
                return Ok(Ended::Working(HEALTH));
            }
            if let Ended::Working(command) = self.turn(shown, turn, call, patience).await? {
                return Ok(Ended::Working(command));
            }
        }
        Ok(Ended::Performed)
    }

    async fn perform(&self, id: i64, step: &Step, patience: &mut Patience) -> Result<Performed, Error> {
        let performed = match self.client.call(step.call(id)).await {
            // An update starts no action: the answer is the balancer.
            Ok(_) if matches!(step, Step::Update { .. }) => Ok(End::Success),
            Ok(mut answer) => self.client.follow(answer.take("action")?, patience).await,
            Err(failure) => Err(failure),
        };
        if let (Step::AttachToNetwork { network, .. }, Err(failure)) = (step, &performed)
            && failure.is_absence()
        {
            self.forget_network(*network).await;
        }
        match performed {
            Ok(End::Success) => Ok(Performed::Done),
            Ok(End::Pending) => Ok(Performed::Pending),
            Err(failure) => match step.refused(failure) {
                Refused::AlreadyDone => Ok(Performed::Done),
                Refused::Busy => Ok(Performed::Pending),
                Refused::Skipped(failure) => Ok(Performed::Skipped(failure)),
                Refused::Fatal(failure) => Err(failure.error),
            },
        }
    }

    /// Notes a refused name, or a refused target with all others for which the same reason holds.
    /// So one refusal costs one call.
    async fn refuse(
        &self,
        shown: &LoadBalancer,
        step: &Step,
        failure: Failure,
        plan: &Plan,
        call: &mut Converging,
    ) {
        if let Step::Update { name, .. } = step {
            call.wanted.keeps_name = true;
            let message = format!(
                "the load balancer keeps its name, because another one of the project has the name {name}"
            );
            call.notes.push(BalancerNote { reason: BalancerNote::NAME_TAKEN, message });
        }
        let Step::AddTarget { target, use_private_ip } = step else { return };
        if *use_private_ip != call.wanted.settings.use_private_ip {
            call.lost.insert(target.server);
            let skips = call.skips();
            let Some(skip) = skips.get(&target.server) else { return };
            let message = format!("{}; with its old address: {}", skip.message, failure.error.message);
            call.refused.insert(target.server, Skip { message, ..skip.clone() });
            return;
        }
        if is_explained_by_servers(&failure) && !call.reach.is_current() {
            // Without an answer, the refusal stays without an explanation.
            if let Ok(reach) = self.learn().await {
                call.reach = reach;
            }
        }
        if call.skips().contains_key(&target.server) {
            return;
        }
        let refused = Skip { cause: SkipCause::Refused, message: failure.error.message.clone() };
        if !failure.is(Code::ResourceLimitExceeded) {
            call.refused.insert(target.server, refused);
            return;
        }
        let most = shown.load_balancer_type.max_targets;
        let is_full = match self.balancer_by_id(shown.id).await {
            Ok(Some(now)) => most.is_some_and(|most| most <= now.targets.len()),
            Ok(None) | Err(_) => false,
        };
        let skip = if is_full { full() } else { refused };
        // The targets before the refused one were added.
        let planned = plan.steps.iter().skip_while(|other| *other != step);
        for planned in planned {
            if let Step::AddTarget { target, .. } = planned {
                call.refused.insert(target.server, skip.clone());
            }
        }
    }

    /// Replaces the sort of address of one target. If the cloud rejects the new one, the target
    /// gets the old one back.
    async fn turn(
        &self,
        shown: &LoadBalancer,
        turn: &Turn,
        call: &mut Converging,
        patience: &mut Patience,
    ) -> Result<Ended, Error> {
        let Turn { target, healthy } = turn;
        let use_private_ip = call.wanted.settings.use_private_ip;
        if !healthy.is_empty() {
            let turned = Turned { server: target.server, healthy: healthy.clone() };
            if let Some(waits) = self.note_turned(shown.id, turned, patience).await? {
                return Ok(Ended::Working(waits));
            }
        }
        self.note_detached(shown.id, target.server);
        let remove = Step::RemoveTarget(OldTarget::Server(target.server));
        if let Performed::Pending = self.perform(shown.id, &remove, patience).await? {
            return Ok(Ended::Working(remove.command()));
        }
        let add = |use_private_ip| Step::AddTarget { target: target.clone(), use_private_ip };
        match self.perform(shown.id, &add(use_private_ip), patience).await {
            Ok(Performed::Done) => Ok(Ended::Performed),
            Ok(Performed::Pending) => Ok(Ended::Working(HEALTH)),
            Ok(Performed::Skipped(failure)) => {
                let skip = Skip { cause: SkipCause::Refused, message: failure.error.message.clone() };
                if !healthy.is_empty() {
                    self.note_refused_turn(shown.id, target.server, use_private_ip, skip.clone());
                }
                call.refused.insert(target.server, skip);
                // If this has no effect, either, the next plan repeats it.
                match self.perform(shown.id, &add(!use_private_ip), patience).await {
                    Ok(_) => Ok(Ended::Performed),
                    Err(error) => {
                        let (node, first) = (&target.node, failure.error.message);
                        let message =
                            format!("Node {node}: {first}; with its old address: {}", error.message);
                        Err(Error { message, ..error })
                    }
                }
            }
            Err(error) => {
                // The error of the new address is the result of the call in any case.
                let _ = self.perform(shown.id, &add(!use_private_ip), patience).await;
                let message = format!("Node {}: {}", target.node, error.message);
                Err(Error { message, ..error })
            }
        }
    }

    fn note_refused_turn(&self, balancer: i64, server: i64, is_private: bool, skip: Skip) {
        let mut all = self.refused_turns.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(RefusedTurn { balancer, server, is_private, at: Instant::now(), skip });
    }

    /// The refused turns of a balancer to the wanted sort of address. Each further try would take
    /// the traffic from its target, so the next one follows after an hour.
    fn refused_turns(&self, shown: &LoadBalancer, wanted: &Wanted) -> Skips {
        let mut all = self.refused_turns.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|refused| refused.at.elapsed() < TURN_AGAIN_AFTER);
        let is_so = |refused: &&RefusedTurn| {
            refused.balancer == shown.id && refused.is_private == wanted.settings.use_private_ip
        };
        all.iter().filter(is_so).map(|refused| (refused.server, refused.skip.clone())).collect()
    }

    fn note_detached(&self, balancer: i64, server: i64) {
        self.detached.lock().unwrap_or_else(PoisonError::into_inner).insert((balancer, server));
    }

    /// The servers that were removed from a balancer to get another sort of address. This process
    /// knows the servers that it removed, and the label has the server that carried traffic.
    fn detached(&self, shown: &LoadBalancer, turned: Option<&Turned>) -> BTreeSet<i64> {
        let all = self.detached.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.iter().filter(|(balancer, _)| *balancer == shown.id).map(|(_, server)| *server);
        own.chain(turned.map(|turned| turned.server)).collect()
    }

    /// Forgets the removed targets that a balancer has again, or no longer needs.
    fn forget_detached(&self, shown: &LoadBalancer, wanted: &Wanted) {
        let wants = |server: i64| wanted.targets.iter().any(|target| target.server == server);
        let lacks = |server: i64| wants(server) && !shown.has_server(server);
        let mut all = self.detached.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(balancer, server)| *balancer != shown.id || lacks(*server));
    }

    /// Writes the target that is turned next to the balancer, for a process that takes over.
    /// Returns the change if the cloud has no time for it now.
    async fn note_turned(
        &self,
        id: i64,
        turned: Turned,
        patience: &mut Patience,
    ) -> Result<Option<&'static str>, Error> {
        // A request replaces all labels, and earlier steps of the call may have changed them.
        let LoadBalancer { name, mut labels, .. } = self.reread(id).await?;
        labels.insert(TURNED.to_owned(), turned.label());
        let update = Step::Update { name, labels };
        if let Performed::Pending = self.perform(id, &update, patience).await? {
            return Ok(Some(update.command()));
        }
        self.set_turned(id, Some(turned));
        Ok(None)
    }

    /// Attaches a balancer again whose new attachment failed: as it was, or with any address.
    async fn attach_again(&self, id: i64, step: &Step, call: &Converging, patience: &mut Patience) {
        let Step::AttachToNetwork { network, .. } = step else { return };
        let any = Step::AttachToNetwork { network: *network, ip: None, ip_range: None };
        let before = match &call.detached {
            Some(detached) => detached,
            // An earlier call may have detached it.
            None if call.wanted.settings.use_private_ip => &any,
            None => return,
        };
        // The error of the new attachment is the result of the call in any case.
        let _ = self.perform(id, before, patience).await;
    }

    /// Fails if the address that the settings ask for is not free.
    async fn check_attachment(&self, shown: &LoadBalancer, wanted: &Wanted) -> Result<(), Error> {
        let Some(id) = wanted.network else { return Ok(()) };
        let network: Option<Network> = self.client.find(Call::get("/networks/-", id), "network").await?;
        if network.is_none() {
            self.forget_network(id).await;
        }
        let network = network.ok_or_else(|| {
            Error::new(ErrorKind::InvalidSpec, format!("HCLOUD_NETWORK: network {id} does not exist"))
        })?;
        let servers = self.servers(request::all()).await?;
        let balancers: Vec<LoadBalancer> = self.client.list(&Call::list(BALANCERS), "load_balancers").await?;
        attachment::check(shown, &wanted.settings, &network, &servers, &balancers)
    }

    pub(in crate::balancer) async fn reread(&self, id: i64) -> Result<LoadBalancer, Error> {
        let shown = self.balancer_by_id(id).await?;
        let deleted = || {
            let text = format!("load balancer {id} was deleted while it was changed");
            Error::new(ErrorKind::Unavailable, text)
        };
        shown.ok_or_else(deleted)
    }

    async fn reach_for(&self, wanted: &Wanted, shown: &LoadBalancer) -> Reach {
        self.reach(wanted, |server| shown.has_server(server)).await
    }

    /// The known facts about servers. If an old answer excludes a target that the balancer lacks,
    /// the servers are read again.
    async fn reach(&self, wanted: &Wanted, has: impl Fn(i64) -> bool) -> Reach {
        let remembered = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((at, reach)) = remembered else { return Reach::unknown(self.options.address_family) };
        let excludes = reach.skips(wanted).keys().any(|server| !has(*server));
        if excludes && CURRENT_FOR < at.elapsed() {
            return self.learn().await.unwrap_or(reach);
        }
        reach
    }

    /// Reads all servers.
    async fn learn(&self) -> Result<Reach, Error> {
        let view = self.view().await?;
        let servers = self.servers(request::all()).await?;
        let reach = Reach::of(view, &servers);
        self.remember(reach.clone());
        Ok(reach.current())
    }

    /// Remembers what a list of all servers has shown.
    pub(crate) fn remember(&self, reach: Reach) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), reach));
    }

    /// The target that was turned last. The label counts, because another process may have written
    /// it; another program may have removed it.
    fn turned(&self, shown: &LoadBalancer) -> Option<Turned> {
        let remembered =
            || self.turned.lock().unwrap_or_else(PoisonError::into_inner).get(&shown.id).cloned();
        Turned::of(&shown.labels).or_else(remembered)
    }

    fn set_turned(&self, balancer: i64, turned: Option<Turned>) {
        let mut all = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        match turned {
            Some(turned) => drop(all.insert(balancer, turned)),
            None => drop(all.remove(&balancer)),
        }
    }
}

/// The cloud accepted all steps and shows the same differences again. A repetition would not help,
/// so the next call waits for the next change or resync.
fn without_effect(steps: &[Step]) -> BalancerNote {
    let commands: Vec<&str> = steps.iter().map(Step::command).collect();
    BalancerNote {
        reason: "ChangeWithoutEffect",
        message: format!(
            "the cloud accepted {} but shows the old values; compare the annotations with the load balancer",
            commands.join(", ")
        ),
    }
}
