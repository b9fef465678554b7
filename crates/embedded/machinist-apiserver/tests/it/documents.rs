//! Documents that clients read first: discovery and OpenAPI, in all requested formats.

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use machinist_apiserver::{Config, Identity, Server};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::Service;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn ask(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response<Vec<u8>> {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(bytes::Bytes::new())).expect("a request");
    let response = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, body.collect().await.expect("a body").to_bytes().to_vec())
}

fn header(response: &Response<Vec<u8>>, name: &str) -> String {
    let value = response.headers().get(name).and_then(|v| v.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn value(response: &Response<Vec<u8>>) -> Value {
    serde_json::from_slice(response.body()).unwrap_or(Value::Null)
}

#[tokio::test]
async fn a_cached_document_is_not_sent_again() {
    let server = Server::new(Config::default());
    for (path, accept) in [("/apis", AGGREGATED), ("/openapi/v3", "*/*"), ("/openapi/v3/api/v1", "*/*")] {
        let first = ask(&server, path, &[("Accept", accept)]).await;
        assert_eq!(first.status(), 200, "{path}");
        let tag = header(&first, "etag");
        assert!(!tag.is_empty(), "{path}");
        let again = ask(&server, path, &[("Accept", accept), ("If-None-Match", &tag)]).await;
        assert_eq!((again.status().as_u16(), again.body().len()), (304, 0), "{path}");
    }
}

#[tokio::test]
async fn an_outdated_link_redirects_to_the_current_document() {
    let server = Server::new(Config::default());
    let index = value(&ask(&server, "/openapi/v3", &[]).await);
    let link = index["paths"]["api/v1"]["serverRelativeURL"].as_str().expect("a link").to_owned();
    assert_eq!(ask(&server, &link, &[]).await.status(), 200);
    let older = ask(&server, "/openapi/v3/api/v1?hash=AB", &[]).await;
    assert_eq!((older.status().as_u16(), header(&older, "location")), (301, link));
    assert_eq!(ask(&server, "/openapi/v3/apis/none/v1", &[]).await.status(), 404);
}

#[tokio::test]
async fn openapi_describes_a_definition_as_soon_as_it_is_served() {
    let server = Server::new(Config::default());
    let before = header(&ask(&server, "/openapi/v3", &[]).await, "etag");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.t.dev"},
        "spec": {"group": "t.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "description": "A thing", "properties": {
                "spec": {"type": "object", "properties": {"size": {"x-kubernetes-int-or-string": true}}}}}}
        }]}
    });
    let request = Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        .body(Full::new(definition.to_string().into()))
        .expect("a request");
    let made = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    assert_eq!(made.status(), 201);
    assert_ne!(before, header(&ask(&server, "/openapi/v3", &[]).await, "etag"));
    let document = value(&ask(&server, "/openapi/v3/apis/t.dev/v1", &[]).await);
    let thing = &document["components"]["schemas"]["dev.t.v1.Thing"];
    assert_eq!(thing["description"], "A thing");
    assert_eq!(
        thing["properties"]["spec"]["properties"]["size"]["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    let patch = &document["paths"]["/apis/t.dev/v1/namespaces/{namespace}/things/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().expect("parameters");
    assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"), "{patch}");
}

#[tokio::test]
async fn an_unsupported_protobuf_field_is_named() {
    let server = Server::new(Config::default());
    // A Node with an unknown ninth field.
    let body = b"k8s\0\x0a\x0a\x0a\x02v1\x12\x04Node\x12\x02\x4a\x00";
    let request = Request::post("/api/v1/nodes")
        .header("Content-Type", "application/vnd.kubernetes.protobuf")
        .body(Full::new(bytes::Bytes::from_static(body)))
        .expect("a request");
    let response = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    assert_eq!(response.status(), 415);
    let text = response.into_body().collect().await.expect("a body").to_bytes();
    let status: Value = serde_json::from_slice(&text).expect("a Status");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains("field 9 of Node") && message.contains("send application/json"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_accept_header_gets_an_answer(parameters in "[a-z=;.0-9A-Z \"*/]{0,40}", path in prop_oneof![
        Just("/apis"), Just("/api"), Just("/api/v1"), Just("/openapi/v3"), Just("/api/v1/namespaces"),
        Just("/api/v1/namespaces/default"), Just("/version"),
    ]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let server = Server::new(Config::default());
            let accept = format!("application/json;{parameters}");
            assert_eq!(ask(&server, path, &[("Accept", &accept)]).await.status(), 200, "{accept}");
            let anything = ask(&server, path, &[("Accept", &parameters)]).await.status().as_u16();
            assert!(matches!(anything, 200 | 406), "{parameters}: {anything}");
        });
    }
}

#[tokio::test]
async fn openapi_describes_the_ownership_of_lists_and_maps() {
    let server = Server::new(Config::default());
    let core = value(&ask(&server, "/openapi/v3/api/v1", &[]).await);
    let schema = |name: &str| core["components"]["schemas"][name].clone();
    let field =
        |of: &str, name: &str| schema(&format!("io.k8s.api.core.v1.{of}"))["properties"][name].clone();
    assert_eq!(field("NodeSpec", "taints")["x-kubernetes-list-type"], "atomic");
    assert_eq!(field("NodeStatus", "conditions")["x-kubernetes-list-map-keys"], json!(["type"]));
    assert_eq!(
        field("Container", "ports")["x-kubernetes-list-map-keys"],
        json!(["containerPort", "protocol"])
    );
    assert_eq!(field("PodSpec", "nodeSelector")["x-kubernetes-map-type"], "atomic");
    let meta = schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    assert_eq!(meta["properties"]["finalizers"]["x-kubernetes-list-type"], "set");
    let owner = schema("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference");
    assert_eq!(owner["x-kubernetes-map-type"], "atomic");
    let bodies = &core["paths"]["/api/v1/nodes/{name}"]["patch"]["requestBody"]["content"];
    assert!(bodies.get("application/apply-patch+yaml").is_some(), "{bodies}");
}
