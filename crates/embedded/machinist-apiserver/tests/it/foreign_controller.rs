//! The example of a foreign controller contains its own test.

#[path = "../../examples/foreign_controller.rs"]
mod example;

#[test]
fn the_example_of_a_foreign_controller_succeeds() {
    example::main().expect("each step of the example succeeds");
}
