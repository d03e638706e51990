// Command release builds a version of Superpool into a folder: images of its programs, manifests that name them by
// digest, kubectl-vc for workstations, and the modules in each binary with their terms. The same commit, version and registry
// give the same files.
//
//	release -version v0.1.0 -registry registry.example.com/superpool [-push] [-force]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/superpool/superpool/manifests/parameters"
)

// module is the Go module of the programs, and the place of their source.
const module = "github.com/superpool/superpool"

// cli is the program for workstations.
const cli = "kubectl-vc"

var (
	// imagePlatforms are those of each image.
	imagePlatforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
	// cliPlatforms are those of kubectl-vc.
	cliPlatforms = append([]v1.Platform{{OS: "darwin", Architecture: "arm64"}, {OS: "windows", Architecture: "amd64"}}, imagePlatforms...)
)

// mostOfVersion is how long the value of a label may be, which the version is.
const mostOfVersion = 63

// release is what one run makes.
type release struct {
	// root is the checkout, out the folder that is written.
	root, out string
	// version is the release's, registry what is before the name of each image.
	version, registry string
	// revision is the commit, created its time: that of everything, so that it depends on the commit alone.
	revision string
	created  time.Time
	// linked is what kubectl-vc names images by: NAME=REFERENCE of each, with commas between them.
	linked string
	// modules are those in the binaries, as PATH@VERSION.
	modules map[string]bool
	push    bool
	force   bool
	log     io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM) //nolint:forbidigo // nobody calls it
	context.AfterFunc(ctx, stop)                                                             // the second one ends the process
	r := &release{root: ".", log: os.Stdout}
	flag.StringVar(&r.version, "version", "", "the version, as v0.1.0")
	flag.StringVar(&r.registry, "registry", "", "what is before the name of each image, as registry.example.com/superpool")
	flag.BoolVar(&r.push, "push", false, "push the images, with the credentials that docker login has left")
	flag.BoolVar(&r.force, "force", false, "with -push, replace a version in the registry; without, release a tree with changes that no commit holds")
	flag.Parse()
	if err := r.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes the release beside its folder, which it replaces when all is there, and pushes last.
func (r *release) run(ctx context.Context) error {
	if err := errors.Join(r.validate(), r.commit(ctx)); err != nil {
		return err
	}
	if err := r.reach(); err != nil {
		return err
	}
	folder := filepath.Join(r.root, "_output", "release", r.version)
	r.out = folder + ".new"
	old, work := folder+".old", folder+".work"
	if err := errors.Join(os.RemoveAll(r.out), os.RemoveAll(old), os.RemoveAll(work)); err != nil {
		return fmt.Errorf("removing what a run before has left: %w", err)
	}
	images, err := r.write(ctx, work)
	if err := errors.Join(err, os.RemoveAll(work)); err != nil {
		return err
	}
	// Killed between these, it leaves none under the name of the version, and never a part of one.
	if err := os.Rename(folder, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("setting the release before aside: %w", err)
	}
	if err := errors.Join(os.Rename(r.out, folder), os.RemoveAll(old)); err != nil {
		return fmt.Errorf("naming the release: %w", err)
	}
	for _, image := range images {
		if r.push {
			if err := image.push(ctx, r.version, r.force, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
				return fmt.Errorf("%s is whole, but not pushed: %w", folder, err)
			}
		}
		r.say("%s", image.reference())
	}
	r.say("wrote %s: sha256sum -c SHA256SUMS checks it", folder)
	return nil
}

// validate refuses a version or registry that is none.
func (r *release) validate() error {
	if parameters.Version.Check(r.version) != nil || len(r.version) > mostOfVersion || strings.HasSuffix(r.version, "-") {
		return fmt.Errorf("%q is no version to release: give %s, of at most %d characters, as VERSION=v0.1.0", r.version, parameters.Version.Value, mostOfVersion)
	}
	if r.registry == "" {
		return errors.New("the registry is missing: give what is before the name of each image, as REGISTRY=registry.example.com/superpool")
	}
	_, err := name.NewRepository(r.registry + "/" + programs[0].Name)
	if err != nil || strings.Contains(r.registry, "//") || strings.HasSuffix(r.registry, "/") {
		return fmt.Errorf("%q is no place of images: give a registry and a path without https://, as REGISTRY=registry.example.com/superpool", r.registry)
	}
	return nil
}

// commit reads the commit, and refuses a tree with changes that no commit holds: such a one is never pushed.
func (r *release) commit(ctx context.Context) error {
	changes, err := r.git(ctx, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(changes), "\n")
	switch {
	case changes != "" && r.push:
		return fmt.Errorf("the tree has changes that no commit holds (%s): commit them to push", first)
	case changes != "" && !r.force:
		return fmt.Errorf("the tree has changes that no commit holds (%s): commit them, or give FORCE=1", first)
	}
	line, err := r.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	revision, seconds, _ := strings.Cut(strings.TrimSpace(line), " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the time of commit %s: %w", revision, err)
	}
	r.revision, r.created = revision, time.Unix(unix, 0).UTC()
	if changes != "" {
		r.revision += "-dirty"
	}
	return nil
}

func (r *release) git(ctx context.Context, arguments ...string) (string, error) {
	output, err := exec.CommandContext(ctx, "git", append([]string{"-C", r.root}, arguments...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(arguments, " "), err)
	}
	return string(output), nil
}

// write writes all files of the release, and returns its images. Binaries are built in work.
func (r *release) write(ctx context.Context, work string) ([]*packed, error) {
	r.modules = map[string]bool{}
	var images []*packed
	for _, platform := range imagePlatforms {
		var packages, names []string
		for _, program := range programs {
			packages, names = append(packages, "./cmd/"+program.Name), append(names, program.Name)
		}
		if err := r.build(ctx, platform, work, packages...); err != nil {
			return nil, err
		}
		if err := r.start(ctx, platform, work, names...); err != nil {
			return nil, err
		}
	}
	var linked []string
	for _, program := range programs {
		image, err := r.pack(program, work)
		if err != nil {
			return nil, err
		}
		images, linked = append(images, image), append(linked, image.Name+"="+image.reference())
	}
	r.linked = strings.Join(linked, ",")
	if err := r.writeLayout(images); err != nil {
		return nil, err
	}
	for _, platform := range cliPlatforms {
		if err := r.build(ctx, platform, work, "./cmd/"+cli); err != nil {
			return nil, err
		}
		if err := r.start(ctx, platform, work, cli); err != nil {
			return nil, err
		}
		if err := r.writeCLI(platform, work); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(r.writeManifests(ctx, images), r.writeNotes(images), r.writeLicenses(ctx), r.writeKrew()); err != nil {
		return nil, err
	}
	return images, r.writeSums()
}

// build builds packages for a platform into work, statically and without paths of this machine.
func (r *release) build(ctx context.Context, platform v1.Platform, work string, packages ...string) error {
	const kubernetes = "-X k8s.io/component-base/version."
	flags := strings.Join([]string{
		"-s -w", "-X " + module + "/internal/version.version=" + r.version, "-X " + module + "/manifests.images=" + r.linked,
		kubernetes + "gitVersion=v0.0.0+" + r.version, kubernetes + "gitCommit=" + r.revision, kubernetes + "buildDate=" + r.created.Format(time.RFC3339),
	}, " ")
	label := platform.OS + "/" + platform.Architecture
	arguments := append([]string{label, "go", "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", folderOf(work, platform) + "/"}, packages...)
	command := exec.CommandContext(ctx, filepath.Join(r.root, "hack", "gobuild.sh"), arguments...)
	command.Dir, command.Stdout, command.Stderr = r.root, r.log, r.log
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0",
		"GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if err := command.Run(); err != nil {
		return fmt.Errorf("building %s for %s: %w", strings.Join(packages, " "), label, err)
	}
	return nil
}

// start starts programs, if this machine can run them, and refuses one that does not say the version of the release.
func (r *release) start(ctx context.Context, platform v1.Platform, work string, names ...string) error {
	if platform.OS != runtime.GOOS || platform.Architecture != runtime.GOARCH {
		return nil
	}
	for _, name := range names {
		output, err := exec.CommandContext(ctx, filepath.Join(folderOf(work, platform), name), "--version").Output()
		if err != nil {
			return fmt.Errorf("%s --version: %w", name, err)
		}
		if !strings.HasSuffix(string(output), " version "+r.version+"\n") {
			return fmt.Errorf("%s --version says %q, and not %s", name, output, r.version)
		}
	}
	return nil
}

// folderOf is where the binaries of a platform are built.
func folderOf(work string, platform v1.Platform) string {
	return filepath.Join(work, platform.OS+"_"+platform.Architecture)
}

// save writes a file of the release and the folders above it.
func (r *release) save(path string, content []byte) error {
	path = filepath.Join(r.out, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("writing the release: %w", err)
	}
	return nil
}

func (r *release) say(format string, arguments ...any) {
	_, _ = fmt.Fprintf(r.log, "release: "+format+"\n", arguments...) // nobody reads it who has closed it
}
