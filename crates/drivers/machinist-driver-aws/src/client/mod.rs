//! A thin client of the Query API of EC2 and STS: one attempt per call, no retries.
//!
//! `call`, `failure` and `sign` are pure. `sts` gets keys for the identity of a workload. The
//! header `Date` of answers measures the clock of the cloud, and signatures use that clock.
//!
//! Deliberately absent: retries, a token bucket and a cache of answers. The runtime does all of
//! these.

pub(crate) mod call;
pub(crate) mod failure;
mod sign;
mod sts;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use machinist_driver_http::{AGENT, HttpCall, HttpCaller, Nature, header};
use machinist_instance::ErrorKind;
use serde::de::DeserializeOwned;

use crate::model::{self, Ec2Instance, InstancesPage};
use crate::options::AwsOptions;
use crate::secret::{Keys, Login};
use call::Call;
use failure::{Failure, Refusal, refused, unreadable};
use sign::Signed;

/// Time limit of one attempt. EC2 may take several seconds to create an instance.
pub(crate) const ATTEMPT_WITHIN: Duration = Duration::from_secs(20);

/// Largest number of pages of a list: 100,000 instances.
const MAX_PAGES: usize = 100;

/// Number of instances of a page, the largest that EC2 accepts.
const PER_PAGE: &str = "1000";

/// The API of one account in one region.
pub(crate) struct Client {
    pub(crate) caller: HttpCaller,
    pub(crate) options: Arc<AwsOptions>,
    pub(crate) region: String,
    login: Login,
    remembered: sts::Remembered,
}

impl Client {
    pub(crate) fn new(caller: HttpCaller, options: Arc<AwsOptions>, region: String, login: Login) -> Self {
        Self { caller, options, region, login, remembered: sts::Remembered::default() }
    }

    /// Makes one attempt, and parses the answer. An identity of a workload may need another request
    /// before, which changes nothing.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Failure> {
        let keys = match &self.login {
            Login::Keys(keys) => keys.clone(),
            Login::Workload(workload) => self.remembered.keys(self, workload).await?,
        };
        let answer = self.send(call, Some(&keys)).await;
        if let Err(failure) = &answer
            && failure.is_expiry()
        {
            self.remembered.forget().await;
        }
        answer
    }

    /// Reads all pages of a list of instances. The result is complete or an error.
    pub(crate) async fn instances(&self, call: &Call) -> Result<Vec<Ec2Instance>, Failure> {
        let mut instances = Vec::new();
        let mut next = None;
        for _ in 0..MAX_PAGES {
            let page = call.clone().with("MaxResults", PER_PAGE).with_some("NextToken", next);
            let page: InstancesPage = self.call(&page).await?;
            instances.extend(all_of(page.reservation_set.item));
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(instances);
            }
        }
        let text = format!("a list of the cloud has more than {MAX_PAGES} pages");
        Err(Failure::new(ErrorKind::Unavailable, text))
    }

    /// Reads one instance. `None` if the cloud proves its absence: only its error code does. An
    /// answer without the instance is none.
    pub(crate) async fn instance(&self, id: &str, call: &Call) -> Result<Option<Ec2Instance>, Failure> {
        match self.call::<InstancesPage>(call).await {
            Ok(page) => {
                let found = all_of(page.reservation_set.item).find(|found| found.instance_id == id);
                found.map(Some).ok_or_else(|| unreadable(Nature::Reads, "DescribeInstances"))
            }
            Err(failure) if failure.is_absence() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Sends a request, which is signed if there are keys.
    async fn send<T: DeserializeOwned>(&self, call: &Call, keys: Option<&Keys>) -> Result<T, Failure> {
        let request = self.request(call, keys)?;
        let about = HttpCall { nature: call.nature, action: call.action, endpoint: call.action.into() };
        read(call, &self.caller.send(request, about).await?)
    }

    fn request(&self, call: &Call, keys: Option<&Keys>) -> Result<Request<Bytes>, Failure> {
        let cannot = |why: &str| Failure::new(ErrorKind::Denied, format!("cannot build a request: {why}"));
        let url = self.options.url(call.service, &self.region);
        let uri: Uri = url.parse().map_err(|_| cannot("the endpoint is not a URL"))?;
        let body = call.body();
        let mut headers = match keys {
            Some(keys) => {
                let signed = Signed {
                    service: call.service,
                    region: &self.region,
                    host: uri.authority().map(|authority| authority.as_str()).unwrap_or_default(),
                    path: uri.path(),
                    body: body.as_bytes(),
                    at: self.caller.cloud_time(),
                };
                signed.headers(keys).ok_or_else(|| cannot("the access key has letters that are not ASCII"))?
            }
            None => HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(sign::FORM))]),
        };
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let mut request = Request::post(uri).body(Bytes::from(body)).map_err(|_| cannot("wrong header"))?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

fn read<T: DeserializeOwned>(call: &Call, answer: &Response<Bytes>) -> Result<T, Failure> {
    let (status, body) = (answer.status(), answer.body());
    if status.is_success() {
        return model::parse(body).ok_or_else(|| unreadable(call.nature, call.action));
    }
    let retry_after = header::retry_after(answer.headers());
    let failure = refused(call.nature, &Refusal { action: call.action, status, body, retry_after });
    // The support of AWS finds the request by this id.
    let request = header::text(answer.headers(), "x-amzn-requestid");
    let (call, status, error) = (call.action, status.as_u16(), &failure.error);
    if failure.is_absence() {
        tracing::debug!(call, status, request, %error, "The cloud rejected a request");
    } else {
        tracing::info!(call, status, request, %error, "The cloud rejected a request");
    }
    Err(failure)
}

fn all_of(reservations: Vec<model::Reservation>) -> impl Iterator<Item = Ec2Instance> {
    reservations.into_iter().flat_map(|reservation| reservation.instances_set.item)
}
