package policy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// standards evaluates the Pod Security Standards as the admission plugin of this Kubernetes version does.
var standards = mustEvaluator()

func mustEvaluator() podsecurity.Evaluator {
	evaluator, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	if err != nil {
		panic(fmt.Sprintf("the checks of Pod Security are invalid: %v", err)) // a fault of the build
	}
	return evaluator
}

// securityLevel returns the level of Pod Security that a policy wants; "" has the value of the shipped policy.
func securityLevel(level tenancyv1alpha1.PodSecurityLevel) (api.Level, error) {
	if level == "" {
		return api.LevelBaseline, nil
	}
	parsed, err := api.ParseLevel(string(level))
	if err != nil {
		return "", fmt.Errorf("reading spec.pods.securityLevel: %w", err)
	}
	return parsed, nil
}

// checkPodSecurity refuses what the policy's level of Pod Security forbids, once for each of its checks.
func (p *Policy) checkPodSecurity(pod *corev1.Pod, found *refusals) {
	if p.pods.security == api.LevelPrivileged {
		return
	}
	for _, result := range standards.EvaluatePod(api.LevelVersion{Level: p.pods.security, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		if result.Allowed {
			continue
		}
		detail := ""
		if result.ForbiddenDetail != "" {
			detail = " (" + result.ForbiddenDetail + ")"
		}
		found.add("spec", "Pod Security forbids %s%s: pods.securityLevel is %s", result.ForbiddenReason, detail, p.pods.security)
	}
}
