// Package metricsauth lets only those read a program's metrics whom the API server knows and allows to.
//
// controller-runtime has a filter for it, which brings the libraries of API servers: 29 MB more of each program.
package metricsauth

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// asksPerSecond and askBurst bound how often the API server is asked: anybody who reaches the port can make us ask.
const asksPerSecond, askBurst = 5, 20

// FilterProvider returns a metricsserver.Filter that passes on the requests whose bearer token the API server of config
// knows (TokenReview), and whose user may make them (SubjectAccessReview, a non-resource URL): others get 401 and 403,
// and 429 while more are asked about than the API server is to be troubled with.
func FilterProvider(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	api, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making a client for reviews of tokens: %w", err)
	}
	return Filter(api), nil
}

// Filter is FilterProvider's, with a client.
func Filter(api kubernetes.Interface) metricsserver.Filter {
	asks := rate.NewLimiter(asksPerSecond, askBurst)
	return func(logger logr.Logger, handler http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			token, found := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
			if !found || token == "" {
				http.Error(writer, "a bearer token is wanted", http.StatusUnauthorized)
				return
			}
			if !asks.Allow() {
				http.Error(writer, "too many requests", http.StatusTooManyRequests)
				return
			}
			code, err := review(request, api, token)
			if err != nil {
				logger.Error(err, "Asking who reads the metrics failed")
			}
			if code != http.StatusOK {
				http.Error(writer, http.StatusText(code), code)
				return
			}
			handler.ServeHTTP(writer, request)
		}), nil
	}
}

// review returns 200 where the user of token may make request, else why not.
func review(request *http.Request, api kubernetes.Interface, token string) (int, error) {
	ctx := request.Context()
	who, err := api.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("reviewing a token: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(who.Status.User.Extra))
	for key, values := range who.Status.User.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	may, err := api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.Status.User.Username, UID: who.Status.User.UID, Groups: who.Status.User.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: request.URL.Path, Verb: strings.ToLower(request.Method)},
		},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return http.StatusInternalServerError, fmt.Errorf("reviewing the access of %s: %w", who.Status.User.Username, err)
	case !may.Status.Allowed || may.Status.Denied:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
