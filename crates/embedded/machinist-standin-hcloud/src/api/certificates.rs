//! Certificates.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::actions::{begun, json_with_id, of_resource};
use super::call::{Call, Handled, MaybeHandled, Reply, found, id_of};
use super::list::list;
use crate::error::ApiError;
use crate::model::{Certificate, CertificateType, Effect, ResourceRef};

/// The validity of a certificate: 90 days.
const VALID_HOURS: i64 = 90 * 24;

pub(super) fn handle(call: &mut Call<'_>, method: &str, segments: &[&str]) -> MaybeHandled {
    match (method, segments) {
        ("GET", []) => {
            let all =
                call.state().certificates.values().filter(|certificate| certificate.project == call.project);
            found(list(call, "certificates", all.collect(), |certificate| json_of(certificate, call)))
        }
        ("POST", []) => found(create(call)),
        ("GET", [id]) if *id != "actions" => found(get(call, id)),
        ("PUT", [id]) => found(update(call, id)),
        ("DELETE", [id]) => found(delete(call, id)),
        ("POST", [id, "actions", "retry"]) => found(retry(call, id)),
        ("GET", segments) => of_resource(call, "certificate", segments),
        _ => None,
    }
}

fn existing<'a>(call: &'a Call<'_>, id: &str) -> Result<&'a Certificate, ApiError> {
    let certificate = call.state().certificates.get(&id_of(id, "certificate")?);
    certificate
        .filter(|certificate| certificate.project == call.project)
        .ok_or_else(|| ApiError::not_found("certificate"))
}

fn get(call: &Call<'_>, id: &str) -> Handled {
    Ok(Reply::ok(json!({"certificate": json_of(existing(call, id)?, call)})))
}

fn create(call: &mut Call<'_>) -> Handled {
    let mut body = call.body()?;
    let name = body.required_text("name");
    let labels = body.labels("labels").unwrap_or_default();
    let kind = match body.text("type").as_deref() {
        None | Some("uploaded") => CertificateType::Uploaded,
        Some("managed") => CertificateType::Managed,
        Some(_) => {
            body.problem("type", "expected uploaded or managed");
            CertificateType::Uploaded
        }
    };
    let mut domain_names = body.texts("domain_names").unwrap_or_default();
    let certificate = match kind {
        CertificateType::Uploaded => {
            // The private key is not stored, because nothing here speaks TLS.
            body.required_text("private_key");
            domain_names = vec!["stand-in.example".to_owned()];
            Some(body.required_text("certificate"))
        }
        CertificateType::Managed => {
            if domain_names.is_empty() {
                body.problem("domain_names", "missing data for a required field");
            }
            None
        }
    };
    body.finish()?;
    ensure_name_is_free(call, &name)?;
    let id = call.books.store.next_id(call.books.settings.seed);
    let project = call.project.to_owned();
    call.books.store.put_certificate(Certificate {
        id,
        project,
        name,
        created: call.now,
        labels,
        kind,
        domain_names,
        certificate,
    });
    let action = (kind == CertificateType::Managed).then(|| {
        let effect = Effect::IssueCertificate { certificate: id };
        call.begin("create_certificate", vec![ResourceRef::new("certificate", id)], effect)
    });
    let certificate = &call.state().certificates[&id];
    let action = action.map(|action| json_with_id(call, action));
    Ok(Reply::created(json!({"certificate": json_of(certificate, call), "action": action})))
}

fn retry(call: &mut Call<'_>, id: &str) -> Handled {
    let certificate = existing(call, id)?.clone();
    if certificate.kind != CertificateType::Managed {
        return Err(ApiError::new("unsupported_error", "certificate is not managed"));
    }
    let effect = Effect::IssueCertificate { certificate: certificate.id };
    let resources = vec![ResourceRef::new("certificate", certificate.id)];
    let action = call.begin("issue_certificate", resources, effect);
    Ok(begun(call, action))
}

fn update(call: &mut Call<'_>, id: &str) -> Handled {
    let mut certificate = existing(call, id)?.clone();
    let mut body = call.body()?;
    let name = body.text("name").filter(|name| *name != certificate.name);
    let labels = body.labels("labels");
    body.finish()?;
    if let Some(name) = name {
        ensure_name_is_free(call, &name)?;
        certificate.name = name;
    }
    certificate.labels = labels.unwrap_or(certificate.labels);
    call.books.store.put_certificate(certificate.clone());
    Ok(Reply::ok(json!({"certificate": json_of(&certificate, call)})))
}

fn delete(call: &mut Call<'_>, id: &str) -> Handled {
    let certificate = existing(call, id)?.clone();
    if !used_by(&certificate, call).is_empty() {
        return Err(ApiError::new("resource_in_use", "certificate is used by a load balancer"));
    }
    call.books.store.remove_certificate(certificate.id);
    Ok(Reply::empty())
}

fn ensure_name_is_free(call: &Call<'_>, name: &str) -> Result<(), ApiError> {
    let mut of_project =
        call.state().certificates.values().filter(|certificate| certificate.project == call.project);
    if of_project.any(|certificate| certificate.name == name) {
        return Err(ApiError::not_unique("certificate", "name"));
    }
    Ok(())
}

fn used_by(certificate: &Certificate, call: &Call<'_>) -> Vec<Value> {
    let uses_it = |http: &crate::ServiceHttp| http.certificates.contains(&certificate.id);
    let balancers = call.state().load_balancers.values();
    balancers
        .filter(|balancer| balancer.services.iter().any(|service| service.http.as_ref().is_some_and(uses_it)))
        .map(|balancer| json!({"id": balancer.id, "type": "load_balancer"}))
        .collect()
}

fn json_of(certificate: &Certificate, call: &Call<'_>) -> Value {
    let is_issued = certificate.certificate.is_some();
    let not_valid_after = certificate.created.checked_add(SignedDuration::from_hours(VALID_HOURS)).ok();
    let status = match certificate.kind {
        CertificateType::Uploaded => Value::Null,
        CertificateType::Managed => {
            let issuance = if is_issued { "completed" } else { "pending" };
            json!({"issuance": issuance, "renewal": "unavailable", "error": null})
        }
    };
    json!({
        "id": certificate.id, "name": certificate.name, "created": certificate.created,
        "labels": certificate.labels, "type": certificate.kind,
        "domain_names": certificate.domain_names, "certificate": certificate.certificate,
        "not_valid_before": is_issued.then_some(certificate.created),
        "not_valid_after": not_valid_after.filter(|_| is_issued),
        "fingerprint": is_issued.then(|| format!("00:{:016x}", certificate.id)),
        "status": status, "used_by": used_by(certificate, call),
    })
}
