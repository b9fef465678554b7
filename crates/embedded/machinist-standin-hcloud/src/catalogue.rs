//! The fixed part of the API: locations, server types, images and load balancer types.
//!
//! Prices and traffic are zero, because no program that we test decides by them.

use serde_json::{Value, json};

/// A location.
pub(crate) struct Location {
    pub(crate) id: i64,
    pub(crate) name: &'static str,
    pub(crate) network_zone: &'static str,
    /// The `datacenter` of servers there, for the replies before its removal.
    pub(crate) datacenter: &'static str,
    country: &'static str,
    city: &'static str,
    latitude: f64,
    longitude: f64,
}

const fn location(
    id: i64,
    (name, network_zone, datacenter): (&'static str, &'static str, &'static str),
    (country, city): (&'static str, &'static str),
    (latitude, longitude): (f64, f64),
) -> Location {
    Location { id, name, network_zone, datacenter, country, city, latitude, longitude }
}

pub(crate) const LOCATIONS: [Location; 6] = [
    location(1, ("fsn1", "eu-central", "fsn1-dc14"), ("DE", "Falkenstein"), (50.47612, 12.370071)),
    location(2, ("nbg1", "eu-central", "nbg1-dc3"), ("DE", "Nuremberg"), (49.452102, 11.076665)),
    location(3, ("hel1", "eu-central", "hel1-dc2"), ("FI", "Helsinki"), (60.169855, 24.938379)),
    location(4, ("ash", "us-east", "ash-dc1"), ("US", "Ashburn, VA"), (39.045821, -77.487073)),
    location(5, ("hil", "us-west", "hil-dc1"), ("US", "Hillsboro, OR"), (45.54222, -122.951924)),
    location(6, ("sin", "ap-southeast", "sin-dc1"), ("SG", "Singapore"), (1.283333, 103.833333)),
];

impl Location {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        LOCATIONS.iter().find(|location| location.name == name)
    }

    pub(crate) fn in_zone(network_zone: &str) -> Option<&'static Self> {
        LOCATIONS.iter().find(|location| location.network_zone == network_zone)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "description": format!("{} data center park", self.city),
            "country": self.country, "city": self.city,
            "latitude": self.latitude, "longitude": self.longitude, "network_zone": self.network_zone,
        })
    }
}

/// A server type.
pub(crate) struct ServerType {
    pub(crate) id: i64,
    pub(crate) name: &'static str,
    pub(crate) cores: u32,
    /// Memory in gigabytes.
    pub(crate) memory: u32,
    /// Disk in gigabytes.
    pub(crate) disk: u32,
    pub(crate) architecture: &'static str,
    cpu_type: &'static str,
}

const fn server_type(
    id: i64,
    name: &'static str,
    (cores, memory, disk): (u32, u32, u32),
    architecture: &'static str,
    cpu_type: &'static str,
) -> ServerType {
    ServerType { id, name, cores, memory, disk, architecture, cpu_type }
}

pub(crate) const SERVER_TYPES: [ServerType; 11] = [
    server_type(22, "cpx11", (2, 2, 40), "x86", "shared"),
    server_type(23, "cpx21", (3, 4, 80), "x86", "shared"),
    server_type(24, "cpx31", (4, 8, 160), "x86", "shared"),
    server_type(45, "cax11", (2, 4, 40), "arm", "shared"),
    server_type(93, "cax21", (4, 8, 80), "arm", "shared"),
    server_type(96, "ccx13", (2, 8, 80), "x86", "dedicated"),
    server_type(97, "ccx23", (4, 16, 160), "x86", "dedicated"),
    server_type(104, "cx22", (2, 4, 40), "x86", "shared"),
    server_type(105, "cx32", (4, 8, 80), "x86", "shared"),
    server_type(106, "cx42", (8, 16, 160), "x86", "shared"),
    server_type(114, "cx23", (2, 4, 40), "x86", "shared"),
];

impl ServerType {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        SERVER_TYPES.iter().find(|server_type| server_type.name == name)
    }

    pub(crate) fn json(&self) -> Value {
        let locations: Vec<Value> = LOCATIONS
            .iter()
            .map(|location| {
                json!({
                    "id": location.id, "name": location.name, "recommended": false, "available": true,
                    "deprecation": null,
                })
            })
            .collect();
        json!({
            "id": self.id, "name": self.name, "description": self.name.to_uppercase(),
            "category": if self.cpu_type == "shared" { "cost_optimized" } else { "general_purpose" },
            "cores": self.cores, "memory": f64::from(self.memory), "disk": self.disk,
            "storage_type": "local", "cpu_type": self.cpu_type, "architecture": self.architecture,
            "deprecated": false, "deprecation": null, "included_traffic": 0,
            "prices": prices(), "locations": locations,
        })
    }
}

/// A system image.
pub(crate) struct Image {
    pub(crate) id: i64,
    pub(crate) name: &'static str,
    pub(crate) architecture: &'static str,
    flavor: &'static str,
    version: &'static str,
    /// Since when new servers should not use the image.
    pub(crate) deprecated: Option<&'static str>,
}

const fn image(
    id: i64,
    name: &'static str,
    architecture: &'static str,
    flavor: &'static str,
    version: &'static str,
) -> Image {
    Image { id, name, architecture, flavor, version, deprecated: None }
}

/// An image that a server can have only by its id.
const DEPRECATED: Image = Image {
    deprecated: Some("2025-06-30T00:00:00Z"),
    ..image(45_557_056, "debian-11", "x86", "debian", "11")
};

pub(crate) const IMAGES: [Image; 9] = [
    DEPRECATED,
    image(67_794_396, "ubuntu-22.04", "x86", "ubuntu", "22.04"),
    image(103_907_373, "ubuntu-22.04", "arm", "ubuntu", "22.04"),
    image(114_690_387, "debian-12", "x86", "debian", "12"),
    image(114_690_389, "debian-12", "arm", "debian", "12"),
    image(161_547_269, "ubuntu-24.04", "x86", "ubuntu", "24.04"),
    image(161_547_270, "ubuntu-24.04", "arm", "ubuntu", "24.04"),
    image(310_557_660, "debian-13", "x86", "debian", "13"),
    image(310_557_661, "debian-13", "arm", "debian", "13"),
];

impl Image {
    pub(crate) fn with_id(id: i64) -> Option<&'static Self> {
        IMAGES.iter().find(|image| image.id == id)
    }

    /// The image that a server of that architecture gets for a name.
    pub(crate) fn named(name: &str, architecture: &str) -> Option<&'static Self> {
        let mut usable = IMAGES.iter().filter(|image| image.deprecated.is_none());
        usable.find(|image| image.name == name && image.architecture == architecture)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "description": format!("{} {}", self.flavor, self.version),
            "type": "system", "status": "available", "image_size": null, "disk_size": 5.0,
            "created": "2024-04-25T13:26:27Z", "created_from": null, "bound_to": null,
            "os_flavor": self.flavor, "os_version": self.version, "architecture": self.architecture,
            "rapid_deploy": true, "protection": {"delete": false}, "deprecated": self.deprecated,
            "deprecation": null, "deleted": null, "labels": {},
        })
    }
}

/// A load balancer type, with its limits.
pub(crate) struct LoadBalancerType {
    pub(crate) id: i64,
    pub(crate) name: &'static str,
    pub(crate) max_services: usize,
    pub(crate) max_targets: usize,
    max_connections: u32,
    max_assigned_certificates: u32,
}

pub(crate) const LOAD_BALANCER_TYPES: [LoadBalancerType; 3] = [
    LoadBalancerType {
        id: 1,
        name: "lb11",
        max_services: 5,
        max_targets: 25,
        max_connections: 10_000,
        max_assigned_certificates: 10,
    },
    LoadBalancerType {
        id: 2,
        name: "lb21",
        max_services: 15,
        max_targets: 75,
        max_connections: 20_000,
        max_assigned_certificates: 25,
    },
    LoadBalancerType {
        id: 3,
        name: "lb31",
        max_services: 30,
        max_targets: 150,
        max_connections: 40_000,
        max_assigned_certificates: 50,
    },
];

impl LoadBalancerType {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        LOAD_BALANCER_TYPES.iter().find(|balancer_type| balancer_type.name == name)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "description": self.name.to_uppercase(),
            "max_connections": self.max_connections, "max_services": self.max_services,
            "max_targets": self.max_targets,
            "max_assigned_certificates": self.max_assigned_certificates,
            "deprecated": null, "deprecation": null, "prices": prices(),
        })
    }
}

fn prices() -> Value {
    let price = json!({"net": "0.0000000000", "gross": "0.0000000000"});
    LOCATIONS
        .iter()
        .map(|location| {
            json!({
                "location": location.name, "price_hourly": price, "price_monthly": price,
                "included_traffic": 0, "price_per_tb_traffic": price,
            })
        })
        .collect()
}
