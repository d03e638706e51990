//go:build race

package kinds_test

// slower is by how much the race detector slows what is measured.
const slower = 10
