package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// reach refuses a registry that takes no images, before anything is built for it.
func (r *release) reach() error {
	if !r.push {
		return nil
	}
	for _, program := range programs {
		repository, err := name.NewRepository(r.registry + "/" + program.Name)
		if err != nil {
			return fmt.Errorf("naming the image of %s: %w", program.Name, err)
		}
		if err := remote.CheckPushPermission(repository.Tag(r.version), authn.DefaultKeychain, http.DefaultTransport); err != nil {
			return fmt.Errorf("registry %s takes no image %s: %w", repository.RegistryStr(), repository.RepositoryStr(), err)
		}
	}
	return nil
}

// absent are answers of registries to who asks for what is not there: some refuse to say it.
var absent = []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden}

// push pushes an image under its version, and what is beside it. A version that is another image there already is
// refused unless it is forced.
func (p *packed) push(ctx context.Context, version string, force bool, options ...remote.Option) error {
	options = append(options, remote.WithContext(ctx))
	tag := p.repository.Tag(version)
	there, err := remote.Head(tag, options...)
	var answer *transport.Error
	switch {
	case err != nil && (!errors.As(err, &answer) || !slices.Contains(absent, answer.StatusCode)):
		return fmt.Errorf("asking for %s: %w", tag, err)
	case err == nil && there.Digest != p.digest && !force:
		return fmt.Errorf("%s is another image there already, %s: give another version, or FORCE=1", tag, there.Digest)
	}
	if err := remote.WriteIndex(tag, p.index, options...); err != nil {
		return fmt.Errorf("pushing %s: %w", tag, err)
	}
	for _, modules := range p.modules {
		digest, err := modules.Digest()
		if err != nil {
			return fmt.Errorf("reading the digest of the modules of %s: %w", tag, err)
		}
		if err := remote.Write(p.repository.Digest(digest.String()), modules, options...); err != nil {
			return fmt.Errorf("pushing the modules of %s: %w", tag, err)
		}
	}
	return nil
}
