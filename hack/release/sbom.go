package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// document is an SPDX 2.3 document (https://spdx.github.io/spdx-spec/v2.3).
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID            string      `json:"SPDXID"`
	Name          string      `json:"name"`
	VersionInfo   string      `json:"versionInfo,omitempty"`
	Download      string      `json:"downloadLocation"`
	FilesAnalyzed bool        `json:"filesAnalyzed"`
	Purpose       string      `json:"primaryPackagePurpose,omitempty"`
	Declared      string      `json:"licenseDeclared"`
	Concluded     string      `json:"licenseConcluded"`
	Copyright     string      `json:"copyrightText"`
	Checksums     []checksum  `json:"checksums,omitempty"`
	External      []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	nothing  = "NOASSERTION"
	ourTerms = "Apache-2.0"
)

// writeModules writes what a binary was built from, by its build info, to sbom/ and returns it.
func (r *release) writeModules(program string, platform v1.Platform, binary string) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the binary: %w", err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the build info of %s: %w", program, err)
	}
	for _, module := range inBinary(info) {
		r.modules[module.Path+"@"+module.Version] = true
	}
	sum := sha256.Sum256(content)
	name := fmt.Sprintf("%s_%s_%s", program, platform.OS, platform.Architecture)
	text, err := json.MarshalIndent(r.document(name, info, hex.EncodeToString(sum[:])), "", " ")
	if err != nil {
		return nil, fmt.Errorf("writing the modules of %s: %w", program, err)
	}
	text = append(text, '\n')
	return text, r.save(path.Join("sbom", name+".spdx.json"), text)
}

// document describes a binary: the module that it is of, at this version, and all that it contains.
func (r *release) document(name string, info *debug.BuildInfo, sum string) document {
	const root = "SPDXRef-DOCUMENT"
	ours := spdxPackage{
		ID: "SPDXRef-" + identifier(name), Name: name, VersionInfo: r.version, Download: "git+https://" + module + "@" + r.revision, Purpose: "APPLICATION",
		Declared: ourTerms, Concluded: ourTerms, Copyright: nothing, Checksums: []checksum{{"SHA256", sum}},
		External: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module + "@" + r.version + "#" + strings.TrimPrefix(strings.TrimPrefix(info.Path, info.Main.Path), "/")}},
	}
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: root, Name: name, Namespace: "https://" + module + "/spdx/" + r.version + "/" + name + "-" + sum,
		Creation:      creation{r.created.Format(time.RFC3339), []string{"Tool: " + module + "/hack/release"}},
		Packages:      []spdxPackage{ours},
		Relationships: []relationship{{root, "DESCRIBES", ours.ID}},
	}
	// Go's standard library is in each binary, and advisories name it so.
	library := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range append([]*debug.Module{library}, inBinary(info)...) {
		p := spdxPackage{
			ID: "SPDXRef-" + identifier(module.Path+"-"+module.Version), Name: module.Path, VersionInfo: module.Version,
			Download: nothing, Declared: nothing, Concluded: nothing, Copyright: nothing,
			External: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module.Path + "@" + url.QueryEscape(module.Version)}},
		}
		// The sum of go.sum is a SHA-256 of the module's files and their sums.
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
			p.Checksums = []checksum{{"SHA256", hex.EncodeToString(sum)}}
		}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{ours.ID, "CONTAINS", p.ID})
	}
	return d
}

// inBinary returns the modules of which a binary has packages, besides its own.
func inBinary(info *debug.BuildInfo) (modules []*debug.Module) {
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		modules = append(modules, module)
	}
	return modules
}

var notOfIdentifier = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// identifier returns a text as SPDX lets identifiers be.
func identifier(text string) string { return notOfIdentifier.ReplaceAllString(text, "-") }
