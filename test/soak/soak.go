// Package soak lets tenants, operators and failures act at random on a pool of real API servers with fake nodes, and
// checks in the end that all sides agree.
//
//	tenants ──────────────► t1 … tN ◄──┐
//	operators ──► meta, r1 … rM ◄──────┤
//	                                 proxies ◄── vc-scheduler, syncer-r1 … syncer-rM, which are killed
//
// Only our programs are behind the proxies, each before one API server: connections break, answers are lost, late, cut
// off or errors, watches end, and for a while nobody answers. A proxy sees all that our programs write, and an auditor
// holds it against who may write what. Pods of super clusters are watched for one that is in two of them at once. Then
// the faults stop, and a checker compares both sides object by object until they agree, or the time for that is over.
// At last each tenant gets one object of each kind, and is removed: meta and super clusters list what they did before.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say how to soak. The zero value is not usable; see DefaultOptions.
type Options struct {
	// Length is how long everybody acts.
	Length time.Duration
	// Seed begins all that is drawn at random. Two runs of one seed draw the same, and differ in what goes on at once.
	Seed uint64
	// Tenants and SuperClusters is how many there are.
	Tenants, SuperClusters int
	// Pause is about how long a tenant rests between two acts.
	Pause time.Duration
	// Settle is how long both sides may take to agree once the faults have stopped.
	Settle time.Duration
	// Folder gets a folder of all state, which is removed at the end; "" is /dev/shm where there is one.
	Folder string
	// Keep is a folder for the logs of our programs, "" for none.
	Keep string
}

// DefaultOptions returns those of make soak.
func DefaultOptions() Options {
	return Options{Length: time.Hour, Tenants: 2, SuperClusters: 2, Pause: 500 * time.Millisecond, Settle: 10 * time.Minute}
}

// Validate returns an error for options that cannot be used.
func (o *Options) Validate() error {
	switch {
	case o.Length <= 0, o.Pause <= 0, o.Settle <= 0:
		return errors.New("length, pause and settle: use more than 0")
	case o.Tenants < 1, o.Tenants > 50, o.SuperClusters < 1, o.SuperClusters > 9:
		return errors.New("tenants and super clusters: use 1 to 50, and 1 to 9")
	}
	return nil
}

// Run soaks. It says in out what it does, and leaves no process behind. An error says what was found.
func Run(ctx context.Context, options Options, out io.Writer) (err error) {
	if err := options.Validate(); err != nil {
		return err
	}
	b, err := newBed(options, out, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	b.Say("Soaking for %s, seed %d", options.Length, options.Seed)
	if err := b.start(ctx); err != nil {
		return fmt.Errorf("starting the pool: %w", err)
	}
	pods := newOnePod(b.supers)
	if err := pods.run(ctx); err != nil {
		return err
	}
	b.act(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	findings, err := b.settle(ctx)
	if err != nil {
		return err
	}
	left, err := b.remove(ctx, b.before)
	if err != nil {
		left = append(left, err.Error())
	}
	panics, err := b.panics()
	if err != nil {
		return err
	}
	findings = slices.Concat(findings, left, panics, b.auditor.findings(), pods.findings())
	b.report(pods)
	if len(findings) > 0 {
		return fmt.Errorf("seed %d found:\n  %s", options.Seed, strings.Join(findings, "\n  "))
	}
	return nil
}

// act lets everybody act, and returns when the time is over and the faults have stopped.
func (b *bed) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.options.Length)
	defer cancel()
	source := func() *rand.Rand { return rand.New(rand.NewPCG(b.random.Uint64(), 2)) } //nolint:gosec // it is to be repeated
	var group sync.WaitGroup
	for _, tenant := range b.tenants {
		a := &actor{client: tenant.client, random: source(), failed: func(err error) { b.Say("Tenant %s met: %v", tenant.name, err) }}
		group.Go(func() { a.run(ctx, b.options.Pause) })
	}
	for _, c := range b.clusters() {
		random := source()
		group.Go(func() { b.changeWeather(ctx, c.proxy, random) })
	}
	operator, killer := source(), source()
	group.Go(func() { b.operate(ctx, operator) })
	group.Go(func() { b.killPrograms(ctx, killer) })
	group.Wait()
	for _, c := range b.clusters() {
		c.proxy.set(calm)
	}
}

// wakePeriod is how often ReplicaSets that lack pods are looked at again in the end.
const wakePeriod = 20 * time.Second

// settle returns what does not agree in the end.
func (b *bed) settle(ctx context.Context) ([]string, error) {
	b.Say("The faults have stopped")
	begin := time.Now()
	for _, super := range b.supers {
		if err := b.eventually(ctx, time.Minute, func(ctx context.Context) error { return b.setNode(ctx, super, false, nil) }); err != nil {
			return nil, fmt.Errorf("opening %s: %w", super.name, err)
		}
	}
	for _, tenant := range b.tenants {
		if err := b.eventually(ctx, time.Minute, func(ctx context.Context) error { return finish(ctx, tenant.client) }); err != nil {
			return nil, fmt.Errorf("making room for %s: %w", tenant.name, err)
		}
	}
	var findings []string
	var woken time.Time
	err := b.eventually(ctx, b.options.Settle, func(ctx context.Context) error {
		b.restart()
		if time.Since(woken) > wakePeriod {
			woken = time.Now()
			for _, tenant := range b.tenants {
				if err := wake(ctx, tenant.client); err != nil {
					return err
				}
			}
		}
		found, compared, err := b.check(ctx)
		if err != nil {
			return err
		}
		if compared == 0 {
			found = append(found, "there is nothing to compare")
		}
		if findings = found; len(found) > 0 {
			return fmt.Errorf("%d findings", len(found))
		}
		b.Say("Both sides agree on %d objects after %s", compared, time.Since(begin).Round(time.Second))
		return nil
	})
	if err != nil && len(findings) == 0 {
		return nil, fmt.Errorf("comparing both sides: %w", err)
	}
	return findings, nil
}

// report says what there was.
func (b *bed) report(pods *onePod) {
	b.Say("%d pods were in super clusters; %d writes were audited", pods.count(), b.auditor.count())
	for _, p := range b.programs {
		b.Say("%s was killed %d times, and ended %d times besides", p.Name, p.kills, p.starts-p.kills)
	}
	for _, c := range b.clusters() {
		b.Say("Requests to %s: %s", c.name, c.proxy.summary())
	}
}

// panicked is what a program logs that panics, whether it goes on or not.
var panicked = regexp.MustCompile(`(?m)^panic: .*|Observed a panic.*`)

// panics returns which programs panicked. They go on, or are started again, so nothing else would show it.
func (b *bed) panics() ([]string, error) {
	var all []string
	for _, p := range b.programs {
		content, err := os.ReadFile(p.Process.Log)
		if err != nil {
			return nil, fmt.Errorf("reading the log of %s: %w", p.Name, err)
		}
		if found := panicked.Find(content); found != nil {
			all = append(all, fmt.Sprintf("%s: %s", p.Name, found))
		}
	}
	return all, nil
}
