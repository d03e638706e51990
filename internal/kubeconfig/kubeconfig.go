// Package kubeconfig reads kubeconfigs that are kept in Secrets, without trusting them.
package kubeconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Parse reads a kubeconfig and returns how to reach the server of its current context.
//
// The file comes from a Secret and may have been written by someone else, so it must stand alone: anything that would
// run a program (exec, auth-provider) or read a file of this process' machine is refused, in any of its entries. Errors
// never contain credentials.
func Parse(data []byte) (*rest.Config, error) {
	if len(data) == 0 {
		return nil, errors.New("the kubeconfig is empty")
	}
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if err := checkInline(raw); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("the kubeconfig's current context names no server")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	server, err := url.Parse(config.Host)
	if err != nil || server.Host == "" || (server.Scheme != "https" && server.Scheme != "http") {
		return nil, errors.New("the kubeconfig's server is not an http or https URL")
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig's certificates: %w", err)
	}
	return config, nil
}

func checkInline(raw *clientcmdapi.Config) error {
	for _, name := range slices.Sorted(maps.Keys(raw.Clusters)) {
		if raw.Clusters[name].CertificateAuthority != "" {
			return fmt.Errorf("cluster %q names a file in certificate-authority: use certificate-authority-data", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(raw.AuthInfos)) {
		user := raw.AuthInfos[name]
		switch {
		case user.Exec != nil:
			return fmt.Errorf("user %q runs a program (exec), which is not allowed: use a token or a client certificate", name)
		case user.AuthProvider != nil:
			return fmt.Errorf("user %q uses an auth-provider, which is not allowed: use a token or a client certificate", name)
		case user.ClientCertificate != "":
			return fmt.Errorf("user %q names a file in client-certificate: use client-certificate-data", name)
		case user.ClientKey != "":
			return fmt.Errorf("user %q names a file in client-key: use client-key-data", name)
		case user.TokenFile != "":
			return fmt.Errorf("user %q names a file in tokenFile: use token", name)
		}
	}
	return nil
}

// Fingerprint returns a hash of parts, by which two connections can be compared without keeping what they were made
// from.
func Fingerprint(parts ...[]byte) string {
	digest := sha256.New()
	for _, part := range parts {
		// A hash never fails to write.
		_, _ = fmt.Fprintf(digest, "%d:", len(part))
		_, _ = digest.Write(part)
	}
	return hex.EncodeToString(digest.Sum(nil))
}
