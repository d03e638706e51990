package attacks

// Benchmark is one check of the Multi-Tenancy Benchmarks, by which Kubernetes' working group for multi-tenancy judged
// clusters whose tenants share an API server (kubernetes-retired/multi-tenancy, benchmarks/kubectl-mtb). There a tenant
// is a user with a namespace; here it has a control plane, so a check asks about the super clusters.
type Benchmark struct {
	// Check is its name, and Profile its level.
	Check   string
	Profile int
	// Here is what it means in a pool.
	Here string
	// Shown names the attacks that show it: those themselves, or their twins for what tenants must be able to do.
	Shown []string
}

// Benchmarks returns all checks, first those of profile 1.
func Benchmarks() []Benchmark {
	return []Benchmark{
		{"Block access to cluster resources", 1, "a tenant's credentials are for its own control plane", []string{"TestCredentials/certificate", "TestCredentials/token", "TestTokens/account-secret"}},
		{"Block multitenant resources", 1, "what the pool and the operator write into super namespaces stays as it is", []string{"TestNames/quota-name", "TestNetwork/isolation-name", "TestNames/reserved-names"}},
		{"Block add capabilities", 1, "level baseline: none beyond the usual ones", []string{"TestPaths/host-rights", "TestStandards/baseline"}},
		{"Block privilege escalation", 1, "with level restricted; the shipped policy has baseline", []string{"TestStandards/restricted"}},
		{"Block privileged containers", 1, "each kind of container", []string{"TestPaths/host-rights", "TestPaths/ephemeral-container", "TestStandards/baseline"}},
		{"Block modification of resource quotas", 1, "the super quota is the pool's; the tenant's own is a request, within its policy", []string{"TestNames/quota-name", "TestQuota/reserved", "TestMarks/placements"}},
		{"Block use of host path volumes", 1, "directly, and by a PersistentVolume", []string{"TestPaths/host-path", "TestVolumes/volume-name"}},
		{"Block use of host IPC", 1, "level baseline", []string{"TestPaths/host-rights", "TestStandards/baseline"}},
		{"Block use of host PID", 1, "level baseline", []string{"TestPaths/host-rights", "TestStandards/baseline"}},
		{"Block use of host networking and ports", 1, "level baseline", []string{"TestPaths/host-rights", "TestStandards/baseline"}},
		{"Block use of NodePort services", 1, "limits.nodePorts is 0", []string{"TestNetwork/node-ports", "TestNetwork/later-node-port"}},
		{"Configure namespace resource quotas", 1, "each super namespace has one, with all that a pod can request", []string{"TestQuota/unnamed-resources", "TestQuota/no-requests"}},
		{"Configure namespace object limits", 1, "by tenant and super cluster, in number and bytes", []string{"TestSize/config-maps", "TestSize/large-config-maps"}},
		{"Require always imagePullPolicy", 1, "pods.imagePull is Always", []string{"TestMetadata/image-pull"}},
		{"Require run as non-root user", 1, "with level restricted; the shipped policy has baseline", []string{"TestStandards/restricted"}},
		{"Require CAP_DROP_ALL (planned there)", 1, "with level restricted; the shipped policy has baseline", []string{"TestStandards/restricted"}},
		{"Block access to other tenant resources", 2, "another tenant's control plane, and its super objects", []string{"TestCredentials/certificate", "TestCredentials/token", "TestMarks/pod-marks", "TestMarks/config-marks"}},
		{"Block role privilege escalation", 2, "roles of a tenant mean nothing in super clusters", []string{"TestCredentials/roles"}},
		{"Default deny network connections across tenants", 2, "before the first pod runs; as packets by `make test-realnodes`", []string{"TestNetwork/isolation-late", "TestNetwork/isolation-name"}},
		{"Create role bindings", 2, "in its own control plane: the twin", []string{"TestCredentials/roles"}},
		{"Create network policies", 2, "they go down: the twin", []string{"TestNetwork/ip-blocks"}},
		{"Create namespaces (planned there)", 2, "with a quota they are placed: the twin", []string{"TestQuota/namespaces"}},
	}
}
