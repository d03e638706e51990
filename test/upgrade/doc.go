// Package upgrade replaces the programs of a pool by those of another version, one after the other and back, under
// load. Its test has the build tag upgrade; `make upgrade` runs it.
package upgrade
