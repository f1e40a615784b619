"""What the functions of this package raise, beside OSError for files of this machine."""


class MrireconError(Exception):
    """The base of all below."""


class NotReached(MrireconError):
    """No server answered, or the connection broke: nothing is known of the request's outcome."""


class Problem(MrireconError):
    """The server refused a request. `status` is the HTTP status, `code` a stable word (such as "bad-parameter"),
    `detail` a sentence, `document` the whole problem document (RFC 9457), `retry_after` seconds or None."""

    def __init__(self, status, document, retry_after=None):
        self.status, self.document, self.retry_after = status, document, retry_after
        self.code = document.get("code", "")
        self.detail = document.get("detail") or f"The server answered with status {status}."
        super().__init__(f"{self.detail} [{self.code}]" if self.code else self.detail)


class JobFailed(MrireconError):
    """A job did not succeed. `job` is the Job, `state` is "failed" or "canceled", `code` is that of the failure."""

    def __init__(self, job):
        error = job.document.get("error") or {}
        self.job, self.state, self.code = job, job.state, error.get("code", "")
        detail = error.get("detail") or f"The job is {job.state}."
        super().__init__(f"Job {job.id}: {detail}" + (f" [{self.code}]" if self.code else ""))


class NotDelivered(MrireconError):
    """A job was not delivered. `job` is the Job, `deliveries` are those that were given up, `answer` is what the first
    of these destinations answered last."""

    def __init__(self, job, deliveries):
        self.job, self.deliveries, self.answer = job, deliveries, deliveries[0]["answer"]
        names = ", ".join(delivery["destination"] for delivery in deliveries)
        super().__init__(f"Job {job.id} was not delivered to {names}: {self.answer}")
