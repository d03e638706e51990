package vnagent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/vnagent"
)

// TestWhenCertificatesEnd: of the serving certificate and its authority's, which it shows too, the first to end counts.
func TestWhenCertificatesEnd(t *testing.T) {
	t.Parallel()
	authority, err := pki.NewAuthority("clients")
	require.NoError(t, err)
	older, err := pki.NewAuthority("clients of before")
	require.NoError(t, err)
	issuedAt := time.Now().Truncate(time.Second)
	pair, err := authority.IssueAt(issuedAt, pki.Certificate{User: "vn-agent", DNSNames: []string{"r1"}, Validity: time.Hour})
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name string, parts ...[]byte) string {
		var text []byte
		for _, part := range parts {
			text = append(text, part...)
		}
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	server, err := vnagent.NewServer(vnagent.Certificates{
		CertFile: write("tls.crt", pair.Certificate, authority.Certificate()), KeyFile: write("tls.key", pair.Key),
		ClientCAFile: write("ca.crt", authority.Certificate(), older.Certificate()),
	})
	require.NoError(t, err)

	registry := prometheus.NewRegistry()
	require.NoError(t, server.RegisterMetrics(registry))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	ends := map[string]time.Time{}
	for _, metric := range families[0].GetMetric() {
		ends[metric.GetLabel()[0].GetValue()] = time.Unix(int64(metric.GetGauge().GetValue()), 0)
	}
	require.Len(t, ends, 2)
	require.WithinDuration(t, issuedAt.Add(time.Hour), ends["serving"], time.Minute)
	require.Greater(t, time.Until(ends["client-ca"]), 365*24*time.Hour)
}
