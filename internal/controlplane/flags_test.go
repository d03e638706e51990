package controlplane_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/internal/controlplane"
)

// replaceable are the flags that extraArgs of a ClusterVersion may replace: nobody else goes by them.
var replaceable = map[string]string{
	controlplane.Etcd: "log-level quota-backend-bytes auto-compaction-mode auto-compaction-retention feature-gates",
	controlplane.APIServer: "authorization-mode enable-admission-plugins allow-privileged kubelet-preferred-address-types enable-aggregator-routing shutdown-delay-duration shutdown-send-retry-after " +
		"goaway-chance profiling service-account-issuer service-account-jwks-uri service-account-extend-token-expiration",
	controlplane.ControllerManager: "use-service-account-credentials resource-quota-sync-period cluster-name profiling controllers",
}

// TestFlagsThatAreNotReplaced: of each flag that vc-manager gives a program it is decided whether extraArgs may replace
// it, and the rules of the CRD name the others.
func TestFlagsThatAreNotReplaced(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "manifests", "crds", "tenancy.x-k8s.io_clusterversions.yaml"))
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(text, crd))
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	c := sample()
	c.Agents = true
	for field, program := range map[string]string{"etcd": controlplane.Etcd, "apiServer": controlplane.APIServer, "controllerManager": controlplane.ControllerManager} {
		rules := ""
		for _, rule := range spec.Properties[field].XValidations {
			rules += rule.Rule
		}
		may := strings.Fields(replaceable[program])
		for name := range flags(t, pods(c)[program]) {
			name = strings.TrimPrefix(name, "--")
			isRefused := strings.Contains(rules, "'"+name+"'")
			if isRefused {
				require.NotContains(t, may, name, program)
				continue
			}
			require.Contains(t, may, name, "%s: refuse it in spec.%s of ClusterVersions, or let it be replaced", program, field)
		}
	}
}
